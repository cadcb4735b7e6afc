"""Reports whose figures are drawn but not written, for tests that do not look at them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from matplotlib.figure import Figure

from reality_check.report.figures.plotting import panel_grid, render


@cache
def _rendered() -> dict[str, bytes]:
    return render(panel_grid(1, 1, 1.0)[0], ("png", "pdf", "svg"))


def blank(figure: Figure, endings: Sequence[str]) -> dict[str, bytes]:
    """In place of ``plotting.render``, which takes some seconds of computing for a whole report."""
    return {ending: _rendered()[ending] for ending in endings}
