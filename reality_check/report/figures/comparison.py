"""Figures of test results: means and differences with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.figures.plotting import (
    FAINT,
    INK,
    SMALL,
    label_x,
    mark_empty,
    panel_grid,
    row_style,
    shorten,
    title,
)
from reality_check.report.summary import Summary
from reality_check.statistics import Bounds, Centred, Comparison, SuiteComparison

#: Height in inches of a row (a name above its marks), and of all else in a panel's cell.
_ROW_HEIGHT, _MARGIN_HEIGHT = 0.36, 0.66
_DOT_STYLE: dict[str, Any] = {"markersize": 3.4, "alpha": 0.65, "markeredgewidth": 0}
_MEAN_STYLE: dict[str, Any] = {"markersize": 5.5, "markeredgewidth": 0}


def intervals_figure(summary: Summary, metric: str = PRIMARY) -> Figure:
    """Plot each method's mean and interval, and its individual values as dots, in percent.

    Each category has a panel. Rows are in the order of the table, the best method first.
    """
    categories, methods = summary.categories, summary.ranked
    label = f"{summary.titles[metric]} (%)"
    figure, grid = _rows_grid(dict.fromkeys(categories, methods), label)
    for category, axes in zip(categories, grid, strict=True):
        samples = summary.samples(category, metric)
        estimates = summary.estimates(category, metric)
        title(axes, category)
        for row, method in enumerate(methods):
            style = row_style(summary.methods.index(method))  # as in the other figures
            if method in samples:
                values = [100 * value for value in samples[method] if math.isfinite(value)]
                # Every other dot is a little lower, since many are close.
                heights = [row - 0.05 + 0.10 * (index % 2) for index in range(len(values))]
                axes.plot(values, heights, "o", color=style[0], **_DOT_STYLE)
                if math.isfinite(estimates[method].mean):
                    _interval(axes, row, estimates[method], style)
            elif samples:
                _text(axes, row + 0.15, "no results yet", style="italic")
        if not samples:
            mark_empty(axes, "no results yet")
    return figure


def _rows_grid(panels: Mapping[str, Sequence[str]], label: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row for each name, which stands above its marks, and the panels.

    Args:
        panels: names of the rows of each panel.
        label: label of the horizontal axes.
    """
    num_rows = max(2, *map(len, panels.values()))
    # Marks of row n are between n - 0.05 and n + 0.28, and its name is at n - 0.33.
    height = _MARGIN_HEIGHT + _ROW_HEIGHT * num_rows
    figure, grid = panel_grid(len(panels), 3, height, left=0.1)
    for axes, names in zip(grid, panels.values(), strict=True):
        axes.set_ylim(num_rows - 0.45, -0.6)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        label_x(axes, label)
        for row, name in enumerate(names):
            _text(axes, row - 0.33, shorten(name, 32))
    return figure, grid


def _text(axes: Axes, y: float, text: str, **style: Any) -> None:
    """Write a text at the left edge of a panel, at the height ``y`` of the data."""
    axes.text(
        0, y, text, transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL, color=INK,
        parse_math=False, **style,
    )  # fmt: skip


def _interval(axes: Axes, row: int, interval: Centred, style: tuple[str, str]) -> None:
    """Draw a mean, in percent, with its interval below the name of the row.

    ``style`` is the colour and the mark of :func:`row_style`.
    """
    colour, mark = style
    if interval.low is not None and interval.high is not None:
        ends = [100 * interval.low, 100 * interval.high]
        axes.plot(ends, [row + 0.28] * 2, color=colour, linewidth=2.6)
    axes.plot([100 * interval.mean], [row + 0.28], mark, color=colour, **_MEAN_STYLE)


def differences_figure(
    shown: Mapping[str, Sequence[Comparison]],
    over_classes: Mapping[tuple[str, str, str], Bounds],
    measure: str = METRICS[PRIMARY],
) -> Figure:
    """Plot the differences of the best method from the others, in points; a panel per category.

    Args:
        shown: comparisons of the best method, by category.
        over_classes: intervals for other test classes, by (category, better, other).
        measure: title of the metric.
    """
    rows = {category: [pair.other for pair in pairs] for category, pairs in shown.items()}
    figure, grid = _rows_grid(rows, f"difference in {measure} (points)")
    for axes, (category, pairs) in zip(grid, shown.items(), strict=True):
        title(axes, f"{category}: {pairs[0].better} minus …", 34)
        axes.axvline(0, color=FAINT, linewidth=1.0)
        for row, pair in enumerate(pairs):
            style = row_style(row)
            if bounds := over_classes.get((category, pair.better, pair.other)):
                ends = [100 * bounds.low, 100 * bounds.high]
                axes.plot(ends, [row + 0.28] * 2, color=style[0], linewidth=0.9)
            _interval(axes, row, pair.difference, style)
    return figure


def forest_figure(
    pairs: Sequence[SuiteComparison], data_sets: Sequence[str], measure: str
) -> Figure:
    """Plot the differences of pairs on each data set and their mean, in points; a panel per pair.

    Args:
        pairs: comparisons of the best method.
        data_sets: the names of the data sets.
        measure: title of the metric.
    """
    titles = [f"{pair.better} minus {pair.other}" for pair in pairs]
    rows = {heading: [*data_sets, "mean"] for heading in titles}
    figure, grid = _rows_grid(rows, f"difference in {measure} (points)")
    for axes, heading, pair in zip(grid, titles, pairs, strict=True):
        title(axes, heading, 34)
        axes.axvline(0, color=FAINT, linewidth=1.0)
        for row, difference in enumerate((*pair.differences, pair.mean)):
            style = row_style(row) if row < len(data_sets) else (INK, "D")
            if difference is None or not math.isfinite(difference.mean):
                _text(axes, row + 0.15, "not known", style="italic")
            else:
                _interval(axes, row, difference, style)
    return figure
