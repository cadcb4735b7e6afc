"""Figures of test results: intervals, differences seed by seed, ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.analysis import AgainstBest, Pair
from reality_check.report.figures.plotting import (
    COLOURS,
    FAINT,
    INK,
    SMALL,
    TEXT,
    WIDTH,
    dress,
    new_figure,
    note,
    panels,
    shorten,
    title,
)
from reality_check.report.statistics import Estimate, Ranking
from reality_check.report.summary import Summary

_SMALL: dict[str, Any] = {"fontsize": SMALL, "color": INK, "parse_math": False}


def intervals_figure(summary: Summary, metric: str = PRIMARY) -> Figure:
    """Return means with intervals and single reproductions: a panel per category, in percent."""
    count = len(summary.categories)
    figure = new_figure(WIDTH, 1.0 + 0.29 * max(2, len(summary.methods)))
    for index, axes in enumerate(panels(figure, count, max(1, count), sharey=True)):
        category = summary.categories[index]
        samples = summary.samples(category, metric)
        estimates = summary.estimates(category, metric)
        for row, method in enumerate(summary.methods):
            if method in samples:
                colour = COLOURS[row % len(COLOURS)]
                _interval_row(axes, row, samples[method], estimates[method], colour)
        title(axes, category)
        axes.set_xlabel(f"{METRICS.get(metric, metric)} (%)", fontsize=TEXT, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylim(len(summary.methods) - 0.4, -0.6)
        axes.set_yticks(range(len(summary.methods)))
        axes.set_yticklabels([shorten(m, 28) for m in summary.methods], parse_math=False)
        axes.tick_params(axis="y", labelleft=index == 0, length=0)
        if not samples:
            note(axes, "no results yet")
        elif len(samples) < len(summary.methods):
            _mark_missing(axes, [r for r, m in enumerate(summary.methods) if m not in samples])
    return figure


def _interval_row(
    axes: Axes, row: int, values: tuple[float, ...], interval: Estimate, colour: str
) -> None:
    """One method in one category: its dots above its interval."""
    finite = [100 * value for value in values if math.isfinite(value)]
    lift = [row - 0.17 - 0.10 * (index % 2) for index in range(len(finite))]
    axes.plot(finite, lift, "o", color=colour, markersize=3.4, alpha=0.65, markeredgewidth=0)
    if not math.isfinite(interval.mean):
        return
    mean = 100 * interval.mean
    if interval.half_width is not None:
        half = 100 * interval.half_width
        axes.plot([mean - half, mean + half], [row + 0.12] * 2, color=colour, linewidth=2.4)
    axes.plot([mean], [row + 0.12], "D", color=colour, markersize=5.5, markeredgewidth=0)


def _mark_missing(axes: Axes, rows: list[int]) -> None:
    transform = axes.get_yaxis_transform()
    for row in rows:
        axes.text(
            0.5, row, "no results yet", transform=transform, ha="center", va="center",
            fontsize=SMALL, color=INK, style="italic",
        )  # fmt: skip


def paired_figure(summary: Summary, shown: Mapping[str, AgainstBest]) -> Figure:
    """Return a panel a category: differences of the best method to the others, in points."""
    rows = [len(against.pairs) for against in shown.values()]
    figure = new_figure(WIDTH, 0.75 * len(rows) + 0.29 * sum(rows))
    grid = figure.add_gridspec(len(rows), 1, height_ratios=[1 + count for count in rows])
    for place, (category, against) in enumerate(shown.items()):
        axes = figure.add_subplot(grid[place, 0])
        dress(axes, SMALL)
        axes.set_title(
            shorten(f"{category}: {against.best} minus …", 90),
            fontsize=TEXT, loc="left", color=INK, parse_math=False,
        )  # fmt: skip
        axes.axvline(0, color=FAINT, linewidth=1.0)
        for row, pair in enumerate(against.pairs):
            _pair_row(axes, row, summary, pair)
        axes.set_yticks(range(len(against.pairs)))
        axes.set_yticklabels([shorten(pair.other, 34) for pair in against.pairs], parse_math=False)
        axes.set_ylim(len(against.pairs) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"difference in {METRICS[PRIMARY]} (points)", fontsize=TEXT, color=INK)
    return figure


def _pair_row(axes: Axes, row: int, summary: Summary, pair: Pair) -> None:
    """One pair: the differences at its seeds above their mean with its intervals."""
    runs = [summary.values[pair.category, PRIMARY, name] for name in (pair.better, pair.other)]
    gaps = [100 * (runs[0][seed] - runs[1][seed]) for seed in runs[0] if seed in runs[1]]
    lift = [row - 0.17 - 0.10 * (index % 2) for index in range(len(gaps))]
    colour = COLOURS[row % len(COLOURS)]
    axes.plot(gaps, lift, "o", color=colour, markersize=3.4, alpha=0.65, markeredgewidth=0)
    mean = 100 * pair.difference.mean
    if pair.anywhere is not None:
        ends = [100 * pair.anywhere.low, 100 * pair.anywhere.high]
        axes.plot(ends, [row + 0.12] * 2, color=colour, linewidth=0.9)
    if pair.difference.half_width is not None:
        half = 100 * pair.difference.half_width
        axes.plot([mean - half, mean + half], [row + 0.12] * 2, color=colour, linewidth=3.0)
    axes.plot([mean], [row + 0.12], "D", color=colour, markersize=5.5, markeredgewidth=0)


def ranks_figure(rankings: Mapping[str, Ranking]) -> Figure:
    """Return a critical-difference diagram a category, the best rank on the left."""
    most = max(len(ranking.methods) for ranking in rankings.values())
    groups = max(len(ranking.groups) for ranking in rankings.values())
    height = 0.64 + 0.1 * groups + 0.18 * ((most + 1) // 2)
    figure = new_figure(WIDTH, height * len(rankings) + 0.1)
    for index, (category, ranking) in enumerate(rankings.items()):
        axes = figure.add_subplot(len(rankings), 1, index + 1)
        _ranks_panel(axes, category, ranking)
    return figure


def _ranks_panel(axes: Axes, category: str, ranking: Ranking) -> None:
    """Ranks along a line; names below it, the first half on the left, the others on the right."""
    count = len(ranking.methods)
    margin = 0.55 * (count - 1)
    axes.set_axis_off()
    title(axes, category)
    axes.plot([1, count], [0, 0], color=INK, linewidth=1.0)
    for rank in range(1, count + 1):
        axes.plot([rank, rank], [0, 0.12], color=INK, linewidth=1.0)
        axes.text(rank, 0.2, str(rank), ha="center", va="bottom", **_SMALL)
    reach = min(ranking.critical_difference, count - 1)
    axes.plot([1, 1 + reach], [1.0, 1.0], color=INK, linewidth=1.6)
    label = f"critical difference {ranking.critical_difference:.2f}"
    axes.text(1 + reach, 1.0, f"  {label}", va="center", ha="left", **_SMALL)
    depth = -0.28
    for first, last in ranking.groups:
        ends = [ranking.mean_ranks[first] - 0.04, ranking.mean_ranks[last] + 0.04]
        axes.plot(ends, [depth, depth], color=COLOURS[0], linewidth=3.2)
        depth -= 0.24
    left = (count + 1) // 2
    for place, (method, mean) in enumerate(zip(ranking.methods, ranking.mean_ranks, strict=True)):
        on_left = place < left
        row = place if on_left else count - 1 - place
        y, edge = depth - 0.3 - 0.5 * row, 1 - 0.1 if on_left else count + 0.1
        axes.plot([mean, mean, edge], [0, y, y], color=FAINT, linewidth=1.0)
        parts = (shorten(method, 30), f"{mean:.2f}")
        text = "  ".join(parts if on_left else reversed(parts))
        axes.text(
            edge - 0.05 if on_left else edge + 0.05, y, text,
            ha="right" if on_left else "left", va="center", **_SMALL,
        )  # fmt: skip
    axes.set_xlim(1 - margin - 0.6, count + margin + 0.6)
    axes.set_ylim(depth - 0.5 * left - 0.2, 1.3)
