"""Looks at a campaign while it grows: how many searches there are to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reality_check.config.protocol import Search


class Looks:
    """Where a campaign is: at a look that is not decided, or at its end.

    Args:
        search: options of the searches; without looks, the first size is the last.
        recorded: what :func:`reality_check.launch.looks.take_look` has recorded at a number of
            searches; ``None`` before.
    """

    def __init__(self, search: Search, recorded: Callable[[int], dict[str, Any] | None]) -> None:
        self.sizes = search.sizes
        self.searches = self.sizes[0]
        self._recorded = recorded

    def advance(self) -> bool:
        """Read whether the campaign has gone on to later looks; return whether it has."""
        before = self.searches
        while self.searches < self.sizes[-1] and (self.decision or {}).get("stops") is False:
            self.searches = self.sizes[self.sizes.index(self.searches) + 1]
        return self.searches > before

    @property
    def decision(self) -> dict[str, Any] | None:
        """What was recorded at this look."""
        return self._recorded(self.searches)

    @property
    def open(self) -> bool:
        """Whether this is a look that nobody has decided yet."""
        return self.searches < self.sizes[-1] and self.decision is None
