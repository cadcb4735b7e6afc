"""How this process's C library treats memory that was freed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

#: Of malloc.h. The kernel gets freed memory back from the heap's end where more than so much lies
#: free there, and blocks from such a size on get a mapping of their own, which it always gets back.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _MAPPED_BYTES = 256 << 20, 32 << 20  # the latter is the most that glibc takes


def keep_freed_memory() -> None:
    """Have glibc keep up to 256 MB of freed memory for the next step of a training.

    By itself it returns the activations of a step to the kernel and gets them back in the next one,
    page by page: up to 1,500 faults a step, 10 to 15 % of the time of a small network on a CPU
    (``benchmarks/training.py --malloc default``). Where the user has set ``MALLOC_...`` or
    ``GLIBC_TUNABLES``, or the C library is another one, nothing changes.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if sys.platform != "linux" or chosen or "GLIBC_TUNABLES" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
