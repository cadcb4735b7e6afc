"""The figure of the maps: a panel a method, a few classes marked among all others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from reality_check.report.figures.plotting import (
    COLOURS,
    FAINT,
    only_names,
    panel_grid,
    shorten,
    title,
)
from reality_check.results import EmbeddingMap
from reality_check.utils.spread import evenly_spread

#: Marked classes, each with a shape as well as a colour: more would not be distinguishable.
_SHAPES = ("o", "s", "^", "D", "v", "P")


def marked_classes(labels: NDArray[np.int64]) -> list[int]:
    """Evenly spaced classes out of those that are on the map."""
    present = np.unique(labels)
    return [int(label) for label in present[evenly_spread(len(present), len(_SHAPES))]]


def map_figure(maps: Mapping[str, EmbeddingMap]) -> Figure:
    """Return one panel per method, without axes, since they mean nothing."""
    figure, grid = panel_grid(len(maps) + 1, 3, 2.3, left=0.1)
    marks: dict[str, tuple[str, str]] = {}
    for (name, shown), axes in zip(maps.items(), grid[:-1], strict=True):
        title(axes, name)
        axes.set_axis_off()
        axes.set_aspect("equal", adjustable="datalim")
        axes.plot(
            *shown.points.T, ".", color=FAINT, markersize=1.8, alpha=0.45, markeredgewidth=0,
            rasterized=True,
        )  # fmt: skip
        for label, shape, colour in zip(
            marked_classes(shown.labels), _SHAPES, COLOURS, strict=False
        ):
            points = shown.points[shown.labels == label]
            axes.plot(*points.T, shape, color=colour, markersize=3.2, markeredgewidth=0, alpha=0.9)
            marks.setdefault(shown.class_names[label], (shape, colour))
    handles = [
        Line2D([], [], linestyle="", marker=shape, color=colour, label=shorten(name, 28))
        for name, (shape, colour) in marks.items()
    ]
    only_names(grid[-1], handles)
    return figure
