"""Who has been silent for too long, told without comparing clocks.

Clocks are set, and those of two machines differ. So no times are compared: whoever looks notes each
sign of life that it sees and when, by its own monotonic clock, which nobody sets. A sign that stays
the same for the grace time means silence. The price is that a new observer has to look that long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any


class Watch:
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
