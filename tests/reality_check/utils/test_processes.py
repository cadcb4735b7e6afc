from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reality_check.utils import processes
from reality_check.utils.processes import is_alive, shares_process_ids, this_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WHO = (
    "import json; from reality_check.utils import processes as p; "
    "print(json.dumps(p.this_process()))"
)
IMPORT = "from reality_check.utils.processes import die_with_parent"
SLEEP = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_this_process_is_alive_and_another_machines_is_taken_to_be() -> None:
    me = this_process()
    assert me["pid"] == os.getpid()
    assert is_alive(me)
    assert is_alive({**me, "host": "elsewhere", "pid": 2**22 + 1})


def test_an_ended_process_is_dead() -> None:
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as process:
        worker = {**this_process(), "pid": process.pid, "started": None}
        assert is_alive(worker)
        process.kill()
        process.wait()
        assert not is_alive(worker)


def test_a_process_of_another_container_is_taken_to_be_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Containers can share the machine's name, its boot and its network, but no process ids."""
    gone = {**this_process(), "pid": 2**22 + 1}
    assert not is_alive(gone)
    monkeypatch.setattr(processes, "_namespace", lambda: "pid:[1]")
    assert is_alive(gone)
    assert not shares_process_ids(gone)


@linux
def test_the_kernel_tells_containers_apart() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    command = ["unshare", "--user", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    if subprocess.run([*command, ""], capture_output=True).returncode != 0:
        pytest.skip("this user may not make a namespace of process ids")
    inside = subprocess.run([*command, WHO], capture_output=True, check=True).stdout
    worker = json.loads(inside)
    assert worker["host"] == this_process()["host"]
    assert is_alive(worker)
    assert not shares_process_ids(worker)


@linux
def test_a_zombie_is_dead() -> None:
    """A killed worker whose parent has not looked yet still has its process id."""
    with subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as process:
        process.kill()
        stat = Path(f"/proc/{process.pid}/stat")
        for _ in range(600):
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.05)
        worker = {**this_process(), "pid": process.pid, "started": None}
        assert not is_alive(worker)


@linux
def test_a_reused_process_id_is_not_the_worker() -> None:
    me = this_process()
    assert isinstance(me["started"], int)
    assert not is_alive({**me, "started": me["started"] - 1})


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    child = f"{IMPORT}; die_with_parent({2**22 + 1}); print('lives')"
    done = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    child = f"import os; {IMPORT}; die_with_parent(os.getppid()); print('lives')"
    done = subprocess.run([sys.executable, "-c", child], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, b"lives\n")


@linux
def test_a_child_dies_with_its_parent() -> None:
    child = (
        "import time; from reality_check.utils.processes import die_with_parent as die; die(); "
        "print('ready', flush=True); time.sleep(600)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\nprint(p.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = {**this_process(), "pid": int(process.stdout.readline()), "started": None}
        assert is_alive(worker)
        process.kill()
        process.wait()
        for _ in range(600):
            if not is_alive(worker):
                break
            time.sleep(0.05)
        assert not is_alive(worker)


# -- freed memory --------------------------------------------------------------------------------

_PROGRAM = """
import resource, sys
import numpy as np
from reality_check.utils.processes import keep_freed_memory
size, all_of_it = map(int, sys.argv[1:])
keep_freed_memory(bool(all_of_it))
def step():
    blocks = [np.ones(size, dtype=np.uint8) for _ in range(16)]
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


def _faults(size: int = 1 << 20, all_of_it: bool = False, **environment: str) -> int:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(size), str(int(all_of_it))],
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
    assert _faults(40 << 20, all_of_it=True) < 400 < _faults(40 << 20)


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
