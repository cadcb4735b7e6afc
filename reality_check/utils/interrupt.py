"""Graceful stops: a signal asks this process to stop where its work can be resumed.

A cluster sends a job a signal shortly before the time limit. The handler only sets a flag; the
training polls it after every epoch, writes a checkpoint and raises :class:`Stopped`.
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
    """Return whether this process was asked to stop."""
    return _requested.is_set()


def check() -> None:
    """Raise :class:`Stopped` if this process was asked to stop."""
    if requested():
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep for some seconds, or until this process is asked to stop."""
    _requested.wait(seconds)


def listen(*signals: int) -> None:
    """Let these signals ask this process to stop. Call it in the main thread."""
    for number in signals:
        signal.signal(number, lambda number, frame: request())
    _listening.extend(signals)


@contextlib.contextmanager
def heeding(*signals: int) -> Iterator[None]:
    """Listen to these signals within the block. Use it in the main thread."""
    before = {number: signal.getsignal(number) for number in signals}
    listen(*signals)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
            _listening.remove(number)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C until the end of the block; a second one is not held back."""
    before = signal.getsignal(signal.SIGINT)  # None: not set by Python, which cannot restore it
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    held_back: list[int] = []

    def hold_back(number: int, frame: object) -> None:
        held_back.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold_back)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in held_back:
            signal.raise_signal(number)


def listening() -> tuple[int, ...]:
    """Return the signals that ask this process to stop, for its child processes."""
    return tuple(_listening)
