"""Locks between processes: lock files that name the process that holds them.

The system releases a lock when its holder ends, even if killed, so no lock becomes stale. Windows
and some file systems have no such locks.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(path: Path, work: str, report: Callable[[str], None]) -> Iterator[bool]:
    """Hold a lock file; if another process holds it, say so and wait until it is free.

    Args:
        path: the lock file, in an existing folder; it is removed afterwards.
        work: what the lock is for, such as ``"downloads 'a.zip'."``, for the message.
        report: called once before waiting, with the message.

    Yields:
        Whether the lock is held; False if there are no locks, so that other processes may do the
        same work.
    """
    if fcntl is None:
        yield False
        return
    while True:
        descriptor = _open(path)
        try:
            held = _lock(descriptor, lambda holder: report(f"Waiting for {holder}, which {work}"))
        except BaseException:
            os.close(descriptor)
            raise
        if not held or _still_names(path, descriptor):
            break
        os.close(descriptor)  # the previous holder removed the file, and others lock the new one
    try:
        yield held
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[str | None]:
    """Hold a lock file within the block, unless another process holds it; the file remains.

    Yields:
        The holder, such as ``process 12 of the machine a``; ``None`` if it is this process, or if
        there are no locks.
    """
    if fcntl is None:
        yield None
        return
    descriptor = _open(path)
    try:
        holder = None
        try:
            _lock(descriptor)
        except BlockingIOError:
            holder = _holder(descriptor)
        yield holder
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _lock(descriptor: int, on_wait: Callable[[str], None] | None = None) -> bool:
    """Lock a file and write who holds it; return False if the file system has no locks.

    Raises:
        BlockingIOError: another process holds the lock, and ``on_wait`` is None.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if on_wait is None:
            raise
        on_wait(_holder(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    holder = f"process {os.getpid()} of the machine {socket.gethostname()}"
    with contextlib.suppress(OSError):  # on a full disk, the lock works without a name too
        os.truncate(descriptor, 0)
        os.write(descriptor, holder.encode())
    return True


def _holder(descriptor: int) -> str:
    """Return the process that a lock file names as its holder."""
    text = os.pread(descriptor, 300, 0).decode(errors="replace")
    return text.strip() or "an unknown process"


def _still_names(path: Path, descriptor: int) -> bool:
    """Return whether the path still names the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
