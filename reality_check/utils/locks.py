"""A lock between processes that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[str], None]) -> Iterator[bool]:
    """Hold a lock file; where another process holds it, say so and wait until it is free.

    The system gives the lock back when its holder ends, killed or not, so nothing stale remains.

    Args:
        path: the lock file, in an existing folder; it is removed afterwards.
        waiting: called once before waiting, with the holder: ``"process 123 of the machine a"``.

    Yields:
        Whether the lock is held: False where the system or the file system has no locks, so that
        other processes may be at the same work.

    Raises:
        OSError: the file cannot be made (no rights, no such folder).
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield False
        return
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = _wait(fcntl, descriptor, waiting)
        except BaseException:
            os.close(descriptor)
            raise
        if not held or _is_file(path, descriptor):
            break
        os.close(descriptor)  # the holder before us removed it: others lock the new file
    try:
        if held:
            _sign(descriptor)
        yield held
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _wait(fcntl: ModuleType, descriptor: int, waiting: Callable[[str], None]) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 300, 0).decode(errors="replace")
        waiting(holder or "another process")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # the file system has no locks
        return False
    return True


def _sign(descriptor: int) -> None:
    """Write who holds the lock, for those who wait."""
    holder = f"process {os.getpid()} of the machine {socket.gethostname()}"
    with contextlib.suppress(OSError):  # a full disk
        os.truncate(descriptor, 0)
        os.write(descriptor, holder.encode())


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
