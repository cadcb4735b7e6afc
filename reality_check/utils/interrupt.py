"""A polite end: a signal asks this process to stop, and it stops where it can resume.

A cluster tells a job shortly before it ends it. The handler only sets a flag; the training polls
it after every epoch, writes its checkpoint and raises :class:`Stopped`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_requested = threading.Event()
_listening: list[int] = []


class Stopped(Exception):
    """This worker was asked to stop: its work is resumed later, from its checkpoint."""


def request() -> None:
    """Ask this process to stop where it can resume."""
    _requested.set()


def requested() -> bool:
    """Whether this process was asked to stop."""
    return _requested.is_set()


def check() -> None:
    """Raise :class:`Stopped` if this process was asked to stop."""
    if requested():
        raise Stopped


def pause(seconds: float) -> None:
    """Do nothing for so long, or until this process is asked to stop."""
    _requested.wait(seconds)


def listen(*signals: int) -> None:
    """From now on, these signals ask this process to stop. Only in the main thread."""
    for number in signals:
        signal.signal(number, lambda number, frame: request())
    _listening.extend(signals)


@contextlib.contextmanager
def heeding(*signals: int) -> Iterator[None]:
    """Listen to these signals while this is open. Only in the main thread."""
    before = {number: signal.getsignal(number) for number in signals}
    listen(*signals)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            _listening.remove(number)


def listening() -> tuple[int, ...]:
    """The signals that ask this process to stop; its child processes are to listen to them too."""
    return tuple(_listening)
