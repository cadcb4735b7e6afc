"""Freed memory stays with a process that trains."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
import numpy as np
from reality_check.utils.allocator import keep_freed_memory
keep_freed_memory()
def step():
    blocks = [np.ones(1 << 20, dtype=np.uint8) for _ in range(16)]  # 16 MB
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


def _faults(**environment: str) -> int:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(
    sys.platform != "linux" or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"),
    reason="the C library is not glibc",
)
def test_a_step_gets_its_memory_back_without_page_faults() -> None:
    assert _faults() < 400


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is not glibc")
@pytest.mark.parametrize(
    "chosen",
    [
        {"MALLOC_MMAP_THRESHOLD_": "65536"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072:glibc.malloc.mmap_threshold=65536"},
    ],
)
def test_what_the_user_has_set_for_malloc_stays(chosen: dict[str, str]) -> None:
    assert _faults(**chosen) > 10_000
