"""Whose work it is, told without comparing clocks.

Clocks are set, and those of two machines differ. So no times are compared: whoever monitors others
notes each heartbeat that it sees and when, by its own monotonic clock, which nobody sets. A
heartbeat that stays the same for the grace time is stale. The price is that a new monitor has to
wait that long.

Whose heartbeat is stale does not know it: a process that is paused, or whose network was away,
continues in the middle of a line. So whoever works holds a lease, and renews it, when it has aged,
before it touches files that another worker may write by now.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any


class HeartbeatMonitor:
    """Remembers the last heartbeat of each of some things."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[Hashable, tuple[Any, float]] = {}

    def stale(self, heartbeats: Mapping[Any, Any], grace: float) -> list[Any]:
        """The keys whose heartbeat has been the same for ``grace`` seconds."""
        now = self._now()
        for key, heartbeat in heartbeats.items():
            if key not in self._seen or self._seen[key][0] != heartbeat:
                self._seen[key] = (heartbeat, now)
        return [key for key in heartbeats if now - self._seen[key][1] >= grace]


class LeaseLost(Exception):
    """The work went to another worker meanwhile: this one stands down."""


class Lease:
    """Work that is this process's own for so long after the last time that this was asked.

    Args:
        is_ours: asks; may take long.
        duration: seconds that an answer counts for. After half of them it is asked again, so that
            whoever only reads the end of the lease seldom meets an old one.
        now: seconds that only ever grow, the same for all processes of this machine.
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
        """Make sure that the work is still ours; return until when, by the clock ``now``.

        Raises:
            LeaseLost: it is not.
        """
        now = self._now()
        if now - self._asked >= self._duration / 2:
            if not self._is_ours():
                raise LeaseLost("its heartbeat was stale for too long")
            self._asked = now
        return self._asked + self._duration


#: Renews a lease: see :meth:`Lease.renew`.
LeaseCheck = Callable[[], float]


def no_lease() -> float:
    """A :data:`LeaseCheck` of work that nobody takes away."""
    return math.inf
