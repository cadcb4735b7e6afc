"""Call a function on all cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

#: How many calls a thread makes in a row, and how many results are computed ahead per core.
_CALLS_PER_TASK, _RESULTS_PER_CORE = 8, 16


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_all_cores(function: Callable[[int], Result], count: int) -> Iterator[Result]:
    """Yield ``function(0)`` to ``function(count - 1)`` in this order, computed in threads."""

    def run_task(start: int) -> list[Result]:
        return [function(index) for index in range(start, min(start + _CALLS_PER_TASK, count))]

    cores = usable_cores()
    with ThreadPoolExecutor(cores) as threads:
        # In parts, because ``map`` computes all results without waiting for them to be taken.
        for first in range(0, count, _RESULTS_PER_CORE * cores):
            end = min(first + _RESULTS_PER_CORE * cores, count)
            for results in threads.map(run_task, range(first, end, _CALLS_PER_TASK)):
                yield from results
