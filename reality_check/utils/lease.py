"""Heartbeats and leases of workers, without comparing the clocks of two machines.

A monitor remembers each heartbeat and when it first saw it, by its own monotonic clock. A heartbeat
that has not changed for the grace time is stale, so a new monitor has to wait that long.

A worker does not notice that its own heartbeat is stale: a process that was paused, or whose
network was down, continues in the middle of a line. So a worker holds a lease, and renews it before
it writes files, because another worker may have taken them over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any


class HeartbeatMonitor:
    """Remembers the last heartbeat of each key, and since when it has been the same."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[Hashable, tuple[Any, float]] = {}

    def stale(self, heartbeats: Mapping[Any, Any], grace: float) -> list[Any]:
        """Return the keys whose heartbeat has been the same for ``grace`` seconds."""
        now = self._now()
        for key, heartbeat in heartbeats.items():
            if key not in self._seen or self._seen[key][0] != heartbeat:
                self._seen[key] = (heartbeat, now)
        return [key for key in heartbeats if now - self._seen[key][1] >= grace]


class LeaseLost(Exception):
    """The work was given to another worker in the meantime."""


class Lease:
    """The right of this process to a piece of work, valid for some time after each check.

    Args:
        is_ours: whether the work is still ours; may take long.
        duration: seconds that an answer is valid for. The check is repeated after half of them, so
            that a process that only reads the end of the lease seldom sees an old one.
        now: a monotonic clock, the same for all processes of this machine.
    """

    def __init__(
        self,
        is_ours: Callable[[], bool],
        duration: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_ours, self._duration, self._now = is_ours, duration, now
        self._asked = now()

    def renew(self) -> float:
        """Check that the work is still ours, and return when the lease ends, by the clock ``now``.

        Raises:
            LeaseLost: the work is another worker's.
        """
        now = self._now()
        if now - self._asked >= self._duration / 2:
            if not self._is_ours():
                raise LeaseLost("its heartbeat was stale for too long")
            self._asked = now
        return self._asked + self._duration


#: A function that renews a lease and returns when it ends, see :meth:`Lease.renew`.
LeaseCheck = Callable[[], float]


def no_lease() -> float:
    """Return that the lease never ends, for work that no other worker can take."""
    return math.inf
