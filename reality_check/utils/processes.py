"""Processes: the identity of a worker, whether it is alive, and how it keeps freed memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Options from malloc.h. Free memory at the end of the heap is returned to the kernel above the
#: trim threshold. Blocks above the mmap threshold get their own mapping, returned when freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_KEPT_BYTES, _MAPPED_BYTES = 256 << 20, 32 << 20  # glibc takes no more than 32 MB


#: Environment variable of workers that end with the run that started them.
OF_RUN = "REALITY_CHECK_OF_RUN"


def this_process() -> dict[str, Any]:
    """Return data that identifies this process among all machines and containers."""
    pid = os.getpid()
    identity = {"host": _host(), "namespace": _namespace(), "pid": pid, "started": _stat(pid)[1]}
    return {**identity, "of_run": True} if OF_RUN in os.environ else identity


def shares_process_ids(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker runs on this machine, since its last boot, and in this container.

    Only then does its process id mean the same process here.
    """
    return bool(worker["host"] == _host() and worker["namespace"] == _namespace())


def is_alive(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker may be running; one that is not visible from here counts as alive."""
    if not shares_process_ids(worker):
        return True
    try:
        os.kill(worker["pid"], 0)  # sends nothing, but fails if there is no such process
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state, started = _stat(worker["pid"])
    if state == "Z":  # ended, but its parent has not noticed
        return False
    # Another start time is that of a new process with the same id; None is unknown.
    return None in (started, worker["started"]) or started == worker["started"]


def die_with_parent(parent: int | None = None) -> None:
    """End this process when the one that started it ends, however it ends.

    A thread watches the parent; on Linux, the parent-death signal does the same at once.

    Args:
        parent: the id of the process that started this one, so that this one also ends if its
            parent has already ended. By default, the current parent is watched.
    """
    parent = os.getppid() if parent is None else parent
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before the signal was requested
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def ends_with_parent(number: signal.Signals) -> Callable[[], object] | None:
    """Return the ``preexec_fn`` of a child that gets a signal when its parent ends; Linux only."""
    if sys.platform != "linux":
        return None
    return functools.partial(ctypes.CDLL(None).prctl, 1, number)  # PR_SET_PDEATHSIG


def keep_freed_memory(all_of_it: bool = False) -> None:
    """Have glibc keep up to 256 MB of freed memory for the next step of a training.

    By default, glibc returns the activations of a step to the kernel and gets them back in the
    next, page by page: up to 1,500 faults a step, 10 to 15 % of the time of a small network on a
    CPU (``benchmarks/training.py --malloc default``). If the user has set ``MALLOC_...`` or
    ``GLIBC_TUNABLES``, or the C library is another one, nothing changes.

    Args:
        all_of_it: whether to keep any amount, and blocks over 32 MB too, such as maps of many large
            images; for a process that runs one network and then ends.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if sys.platform != "linux" or chosen or "GLIBC_TUNABLES" in os.environ:
        return
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        if all_of_it:  # the heap is never trimmed, and no block has its own mapping
            library.mallopt(_TRIM_THRESHOLD, -1)
            library.mallopt(_MMAP_MAX, 0)
        else:
            library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            library.mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)


def _host() -> str:
    """Return the machine and its boot: process ids mean nothing after a restart."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}"


def _namespace() -> str:
    """Return the name of this process's PID namespace: each container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str | None, int | None]:
    """Return state and start time of a process; the latter detects a reused process id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, None
    fields = stat.rpartition(")")[2].split()  # those after the name, see proc(5)
    return fields[0], int(fields[19])
