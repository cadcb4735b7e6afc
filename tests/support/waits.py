"""How often the host waits for a GPU, as torch itself tells it; the simulated one does too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TOLD = "called a synchronizing CUDA operation"


@contextmanager
def waits_counted() -> Iterator[list[str]]:
    """Collect what the host waits for meanwhile; the list is complete at the end."""
    waits: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
            waits += [str(one.message) for one in caught if _TOLD in str(one.message)]


@contextmanager
def no_waits() -> Iterator[None]:
    """Fail where the host waits."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
