"""Who has been silent for too long, told without comparing clocks.

Clocks are set, and those of two machines differ. So no times are compared: whoever looks notes each
sign of life that it sees and when, by its own monotonic clock, which nobody sets. A sign that stays
the same for the grace time means silence. The price is that a new observer has to look that long.

Who was silent does not know it: a process that is paused, or whose network was away, goes on in the
middle of a line. So whoever works asks again, when the last answer has aged, whether the work is
still its own, before it touches files that another worker may write by now.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any


class HeartbeatMonitor:
    """Remembers the last sign of life of each of some things.

    Args:
        now: seconds that only ever grow.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: dict[Hashable, tuple[Any, float]] = {}

    def silent(self, signs: Mapping[Any, Any], grace: float) -> list[Any]:
        """Those of ``signs`` that have shown the same sign for ``grace`` seconds."""
        now = self._now()
        for key, sign in signs.items():
            if key not in self._seen or self._seen[key][0] != sign:
                self._seen[key] = (sign, now)
        return [key for key in signs if now - self._seen[key][1] >= grace]


class LeaseLost(Exception):
    """The work went to another worker meanwhile: this one stands down."""


class Lease:
    """Work that is this process's own for so long after the last time that this was asked.

    Args:
        is_ours: asks; may take long.
        lasts: seconds that an answer holds. It is asked again after half of them, so that whoever
            only reads the end of the lease seldom meets an old one.
        now: seconds that only ever grow, the same for all processes of this machine.
    """

    def __init__(
        self,
        is_ours: Callable[[], bool],
        lasts: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_ours, self._lasts, self._now = is_ours, lasts, now
        self._asked = now()

    def renew_lease(self) -> float:
        """Make sure that the work is still ours; return until when, by the clock ``now``.

        Raises:
            LeaseLost: it is not.
        """
        now = self._now()
        if now - self._asked >= self._lasts / 2:
            if not self._is_ours():
                raise LeaseLost("it was silent for too long")
            self._asked = now
        return self._asked + self._lasts


#: See :class:`reality_check.studies.study.TrialContext`.
LeaseCheck = Callable[[], float]


def no_lease() -> float:
    """A :data:`LeaseCheck` of work that nobody takes away."""
    return math.inf
