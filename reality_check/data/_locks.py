"""A lock between processes that ends with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive_lock(path: Path, waiting: str) -> Iterator[bool]:
    """Hold a lock file; where another process holds it, say so and wait until it is free.

    The system gives the lock back when its holder ends, killed or not, so nothing stale remains.

    Args:
        path: the lock file, in an existing folder; it is removed afterwards.
        waiting: line printed to stderr once, before waiting.

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
        yield held
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _wait(fcntl: object, descriptor: int, waiting: str) -> bool:
    lock = fcntl.flock  # type: ignore[attr-defined]
    exclusive, at_once = fcntl.LOCK_EX, fcntl.LOCK_NB  # type: ignore[attr-defined]
    try:
        lock(descriptor, exclusive | at_once)
    except BlockingIOError:
        print(waiting, file=sys.stderr, flush=True)
        lock(descriptor, exclusive)
    except OSError:  # the file system has no locks
        return False
    return True


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
