"""Who a worker is, and whether it is still there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """What identifies this process among all machines: host, boot, process id and start time."""
    return {"host": _host(), "pid": os.getpid(), "started": _stat(os.getpid())[1]}


def is_alive(worker: dict[str, Any]) -> bool:
    """Whether a worker may still run. Workers of other machines are taken to be alive."""
    if worker["host"] != _host():
        return True
    try:
        os.kill(worker["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state, started = _stat(worker["pid"])
    if state == "Z":
        return False
    return None in (started, worker["started"]) or started == worker["started"]


def die_with_parent() -> None:
    """End this process when the one that started it ends, however it ends.

    Linux's parent-death signal does it at once; a watching thread does it elsewhere, and where
    the parent was gone before the signal was asked for.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def this_boot() -> str:
    """What tells this machine since its start from all others, also from within containers.

    Where the system does not say, it is the machine's name.
    """
    return _boot() or socket.gethostname()


def _host() -> str:
    """The machine and its boot: process ids mean nothing after a restart."""
    return f"{socket.gethostname()}/{_boot()}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str | None, int | None]:
    """State and start time of a process from the kernel; the latter tells a reused process id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None, None
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])
