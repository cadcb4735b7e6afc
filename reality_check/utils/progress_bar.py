"""The progress of a long task: a bar on a terminal, a line every 30 seconds in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

#: Seconds between the lines of a log. Shorter tasks write none.
_LINE_SECONDS = 30.0


def say(text: str) -> None:
    """Print one line for the user to stderr, at once."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(description: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show progress on stderr within the block; yield a function to call with items just done."""
    if sys.stderr.isatty():
        with _bar(description, total, done) as advance:
            yield advance
    else:
        yield _Lines(description, total, done).advance


@contextlib.contextmanager
def _bar(description: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    """Show a bar within the block; yield a function to call with items just done."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(description), total=total, completed=done)
        yield lambda count: bar.advance(task, count)


class _Lines:
    """Prints the progress as lines of a log."""

    def __init__(self, description: str, total: int, done: int) -> None:
        self._description, self._total, self._done = description, total, done
        self._last = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._last >= _LINE_SECONDS:
            self._last = now
            say(f"{self._description}: {self._done:,} of {self._total:,}")
