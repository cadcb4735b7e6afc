"""Figures of the sections on statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.analysis import AgainstBest, Pair
from reality_check.report.figures.overview import mark_best, search_panel
from reality_check.report.figures.plotting import (
    COLOURS,
    FAINT,
    INK,
    SMALL,
    TEXT,
    WIDTH,
    dress,
    legend,
    new_figure,
    panel_grid,
    panels,
    shorten,
    title,
)
from reality_check.report.statistics import Ranking
from reality_check.report.summary import Summary, completed, winner
from reality_check.results import Importance, MethodResults, TrialRecord

Array = NDArray[np.float64]
_WINNER: dict[str, Any] = {"color": COLOURS[1], "markersize": 6, "markeredgewidth": 0}
_BEST_EPOCH: dict[str, Any] = {
    "color": COLOURS[0], "markersize": 3.6, "alpha": 0.8, "markeredgewidth": 0,
}  # fmt: skip
#: Digits of ticks on a logarithmic axis, from few to many.
_ROUND = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(n / 10 for n in range(10, 100)))
#: More labels would overlap in a narrow panel.
_MOST_TICKS = 4
_SMALL: dict[str, Any] = {"fontsize": SMALL, "color": INK, "parse_math": False}


@dataclass(frozen=True)
class BestCurve:
    """The expected best of n trials of a method, and its band for the first few n; fractions."""

    method: str
    curve: Array
    low: Array
    high: Array


def paired_figure(summary: Summary, shown: Mapping[str, AgainstBest]) -> Figure:
    """Return a panel a category: differences of the best method to the others, in points."""
    rows = [len(found.pairs) for found in shown.values()]
    figure = new_figure(WIDTH, 0.75 * len(rows) + 0.29 * sum(rows))
    grid = figure.add_gridspec(len(rows), 1, height_ratios=[1 + count for count in rows])
    for place, (category, found) in enumerate(shown.items()):
        axes = figure.add_subplot(grid[place, 0])
        dress(axes, SMALL)
        axes.set_title(
            shorten(f"{category}: {found.best} minus …", 90),
            fontsize=TEXT, loc="left", color=INK, parse_math=False,
        )  # fmt: skip
        axes.axvline(0, color=FAINT, linewidth=1.0)
        for row, pair in enumerate(found.pairs):
            _pair_row(axes, row, summary, pair)
        axes.set_yticks(range(len(found.pairs)))
        axes.set_yticklabels([shorten(pair.other, 34) for pair in found.pairs], parse_math=False)
        axes.set_ylim(len(found.pairs) - 0.4, -0.6)
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


def expected_best_figure(curves: Sequence[BestCurve]) -> Figure:
    """Return one panel per method: its expected best in percent, the others faint behind it."""
    figure, columns = panel_grid(len(curves), 4, 1.65)
    grid = panels(figure, len(curves), columns, sharey=True)
    for index, (axes, own) in enumerate(zip(grid, curves, strict=True)):
        title(axes, own.method)
        for other in curves:
            if other is not own:
                counts = _counts(other.curve)
                axes.plot(counts, 100 * other.curve, color=FAINT, linewidth=0.7, alpha=0.6)
        colour = COLOURS[index % len(COLOURS)]
        axes.fill_between(
            _counts(own.low), 100 * own.low, 100 * own.high, color=colour, alpha=0.18, linewidth=0
        )
        axes.plot(_counts(own.curve), 100 * own.curve, color=colour, linewidth=1.8)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.supxlabel("trials", fontsize=TEXT, color=INK)
    figure.supylabel(f"validation {METRICS[PRIMARY]} (%)", fontsize=TEXT, color=INK)
    return figure


def _counts(curve: Array) -> Array:
    return np.arange(1, len(curve) + 1, dtype=float)


def importance_figure(importances: Mapping[str, Importance]) -> Figure:
    """Return one panel per method: a bar for each parameter in percent, and the noise dashed."""
    rows = max(len(found.shares) for found in importances.values())
    figure, columns = panel_grid(len(importances), 2, 0.5 + 0.21 * rows)
    grid = panels(figure, len(importances), columns, sharey=False)
    for axes, (method, found) in zip(grid, importances.items(), strict=True):
        title(axes, method)
        names = list(found.shares)
        shares = [100 * found.shares[name] for name in names]
        colours = [COLOURS[0] if share > 100 * found.noise else FAINT for share in shares]
        axes.barh(range(len(names)), shares, height=0.6, color=colours)
        axes.axvline(100 * found.noise, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_yticks(range(len(names)))
        axes.set_yticklabels([shorten(name, 30) for name in names], parse_math=False)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_xlim(0, 100)
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
    figure.supxlabel("share of the variance (%)", fontsize=TEXT, color=INK)
    legend(figure, [Line2D([], [], color=INK, linestyle=(0, (4, 3)), label="shuffled scores")])
    return figure


def slices_figure(method: MethodResults) -> Figure:
    """Return validation scores of every trial in percent: in their order, and by parameter."""
    names = method.searched
    figure, columns = panel_grid(1 + len(names), 4, 1.6)
    grid = panels(figure, 1 + len(names), columns, sharey=True)
    history = next(grid)
    title(history, "trial")
    search_panel(history, method)
    sound = [t for t in method.search if completed(t) and t.diverged is None]
    lost = [t for t in method.search if t.diverged is not None]
    best = winner(method)
    if best is not None:
        history.plot([best.trial_index], [100 * (best.value or 0.0)], "D", **_WINNER)
    for axes, name in zip(grid, names, strict=True):
        title(axes, name)
        _slice(axes, [t.params[name] for t in (*sound, *lost)], name in method.logarithmic)
        scores = [100 * (t.value or 0.0) for t in sound]
        places = [_place(t.params[name]) for t in sound]
        axes.plot(places, scores, "o", color=COLOURS[0], markersize=3.4, alpha=0.7)
        if lost:
            axes.plot(
                [_place(t.params[name]) for t in lost], [0.0] * len(lost), "x", color=INK,
                transform=axes.get_xaxis_transform(), clip_on=False,
            )  # fmt: skip
        if best is not None:
            top = [_place(best.params[name])], [100 * (best.value or 0.0)]
            axes.plot(*top, "D", **_WINNER)
    figure.supylabel(f"validation {METRICS[PRIMARY]} (%)", fontsize=TEXT, color=INK)
    return figure


def curves_figure(runs: Sequence[TrialRecord], best: TrialRecord | None) -> Figure:
    """Return a panel a fold: a line for each run in percent, and the search's winner dashed.

    Args:
        runs: with their curves.
        best: the winner of the search, where there was one.
    """
    folds = max(len(run.curves) for run in runs)
    figure, columns = panel_grid(folds, 4, 1.65)
    for fold, axes in enumerate(panels(figure, folds, columns, sharey=True)):
        title(axes, f"fold {fold}")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for run in runs:
            points = _points(run, fold)
            if points:
                axes.plot(*zip(*points, strict=True), color=COLOURS[0], linewidth=1.0, alpha=0.6)
                mark_best(axes, points, **_BEST_EPOCH)
        if best is not None and (points := _points(best, fold)):
            axes.plot(
                *zip(*points, strict=True), color=COLOURS[1], linewidth=1.4, linestyle=(0, (4, 2))
            )
    figure.supxlabel("epoch", fontsize=TEXT, color=INK)
    figure.supylabel(f"validation {METRICS[PRIMARY]} (%)", fontsize=TEXT, color=INK)
    handles = [Line2D([], [], color=COLOURS[0], linewidth=1.2, label="reproduction")]
    if best is not None and best.curves:
        handles.append(
            Line2D([], [], color=COLOURS[1], linestyle=(0, (4, 2)), label="winner of the search")
        )
    legend(figure, handles)
    return figure


def _points(run: TrialRecord, fold: int) -> list[tuple[int, float]]:
    """Epoch and validation score in percent, without what is not finite."""
    curve = run.curves[fold] if fold < len(run.curves) else ()
    return [(epoch, 100 * value) for epoch, value in curve if math.isfinite(value)]


def _slice(axes: Axes, values: Sequence[Any], logarithmic: bool) -> None:
    """The horizontal axis: logarithmic, linear, or (as it is) the choices by name."""
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        if max(values) / min(values) < 100:  # powers of ten alone would leave one tick, or none
            axes.xaxis.set_major_locator(FixedLocator(log_ticks(min(values), max(values))))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    elif not any(isinstance(value, str | bool) or value is None for value in values):
        axes.xaxis.set_major_locator(MaxNLocator(4))


def log_ticks(low: float, high: float) -> list[float]:
    """Two to four round values between two positive ones; both ends where there are none."""
    exponents = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for digits in _ROUND:
        # As text, so that 3 * 10**-1 is 0.3.
        values = (float(f"{digit}e{exponent}") for exponent in exponents for digit in digits)
        found = [value for value in values if low <= value <= high]
        if len(found) >= 2:
            return found[:: math.ceil(len(found) / _MOST_TICKS)]
    return sorted({low, high})


def _place(value: Any) -> Any:
    """Choices are drawn by name, numbers at their place."""
    return str(value) if isinstance(value, str | bool) or value is None else value
