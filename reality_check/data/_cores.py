"""Work on all cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

#: Calls that a thread makes in a row, and results for each core that wait to be taken.
_CHUNK, _WAITING = 8, 16


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_all_cores(function: Callable[[int], Result], count: int) -> Iterator[Result]:
    """Yield ``function(0)`` to ``function(count - 1)`` in this order, computed in threads."""

    def chunk(start: int) -> list[Result]:
        return [function(index) for index in range(start, min(start + _CHUNK, count))]

    cores = usable_cores()
    with ThreadPoolExecutor(cores) as threads:
        for first in range(0, count, _WAITING * cores):
            last = min(first + _WAITING * cores, count)
            for results in threads.map(chunk, range(first, last, _CHUNK)):
                yield from results
