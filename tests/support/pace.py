"""Time limits that hold on a slow or busy machine too."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """By how much everything takes longer than where nothing else runs on the machine.

    It is right after work without waiting; a busy machine must not look like a lost worker.
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def factor(self) -> float:
        """Seconds that have passed for every second that this process has computed, at least 1."""
        return max(1.0, (time.monotonic() - self._wall) / max(self.computed(), 0.01))

    def computed(self) -> float:
        """Seconds that this process has computed."""
        return time.process_time() - self._cpu


def slowness() -> float:
    """The factor of a pace that is taken now."""
    pace = Pace()
    while pace.computed() < 0.1:
        pass
    return pace.factor()


def wait_until(
    condition: Callable[[], object], seconds: float, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Wait for what takes a part of ``seconds`` where nothing else runs on the machine.

    Args:
        condition: what is waited for.
        seconds: after how many it is waited for in vain; more on a busy machine.
        meanwhile: raises if there is no sense in waiting any longer.
    """
    end = time.monotonic() + seconds * slowness()
    while not condition():
        meanwhile()
        assert time.monotonic() < end, f"waited for {seconds:g} s in vain"
        time.sleep(0.05)
