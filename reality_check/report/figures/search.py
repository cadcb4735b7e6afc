"""Figures of searches and trainings: histories, curves, budgets, hyper-parameters."""

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
from reality_check.report.figures.plotting import (
    COLOURS,
    FAINT,
    INK,
    SMALL,
    name_x,
    note,
    only_names,
    panel_grid,
    share_scale,
    shorten,
    title,
)
from reality_check.report.summary import Summary, completed, winner
from reality_check.results import Importance, MethodResults, TrialRecord
from reality_check.statistics import Estimate

Array = NDArray[np.float64]
_WINNER: dict[str, Any] = {"color": COLOURS[1], "markersize": 6, "markeredgewidth": 0}
_BEST_EPOCH: dict[str, Any] = {
    "color": COLOURS[0], "markersize": 3.6, "alpha": 0.8, "markeredgewidth": 0,
}  # fmt: skip
#: Digits of ticks on a logarithmic axis, from few to many.
_ROUND = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), tuple(n / 10 for n in range(10, 100)))
#: What curves begin with.
UNTRAINED_NOTE = "Epochs −1 (the trunk alone) and 0 (the untrained network) are never chosen."
#: Lines of methods beyond the colours.
_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)))
#: More labels would overlap in a narrow panel.
_MOST_TICKS = 4
_TRIAL: dict[str, Any] = {"color": COLOURS[0], "markersize": 3.4, "alpha": 0.75}
#: Inches of a panel's cell.
_HEIGHT = 1.65


@dataclass(frozen=True)
class BestCurve:
    """The expected best of n trials of a method, and its band for the first few n; fractions."""

    method: str
    curve: Array
    low: Array
    high: Array


def search_figure(summary: Summary) -> Figure:
    """Return one panel per method: every trial's value in percent, the best so far, divergence."""
    methods = [method for method in summary.results.methods if method.search]
    figure, grid = panel_grid(len(methods), 4, _HEIGHT)
    share_scale(grid, _validation(summary.results.selected_by))
    for method, axes in zip(methods, grid, strict=True):
        title(axes, method.name)
        name_x(axes, "search trial")
        _search_panel(axes, method)
    return figure


def _search_panel(axes: Axes, method: MethodResults) -> None:
    """Draw the value of every trial in percent by its number, the best so far and the winner."""
    trials = sorted(method.search, key=lambda trial: trial.trial_index)
    able = [trial for trial in trials if completed(trial) and trial.diverged is None]
    lost = [trial.trial_index for trial in trials if trial.diverged is not None]
    values = [100 * (trial.value or 0.0) for trial in able]
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    if able:
        num_trials = [trial.trial_index for trial in able]
        axes.plot(num_trials, values, "o", **_TRIAL)
        best = [max(values[: i + 1]) for i in range(len(values))]
        axes.step(num_trials, best, where="post", color=COLOURS[1], linewidth=1.6)
    if lost:
        _crosses(axes, lost)
    if top := winner(method):
        axes.plot([top.trial_index], [100 * (top.value or 0.0)], "D", **_WINNER)
    if not able:
        note(axes, "every trial diverged" if lost else "no trial complete yet")


def _crosses(axes: Axes, places: list[Any]) -> None:
    """Mark on the bottom edge what diverged."""
    edge = axes.get_xaxis_transform()
    axes.plot(places, [0.0] * len(places), "x", color=INK, transform=edge, clip_on=False)


def _validation(metric: str) -> str:
    return f"validation {metric} (%)"


def expected_best_figure(curves: Sequence[BestCurve], metric: str = METRICS[PRIMARY]) -> Figure:
    """Return one panel per method: its expected best in percent, the others faint behind it."""
    figure, grid = panel_grid(len(curves), 4, _HEIGHT)
    share_scale(grid, _validation(metric))
    for index, (axes, own) in enumerate(zip(grid, curves, strict=True)):
        title(axes, own.method)
        name_x(axes, "trials")
        for other in curves:
            if other is not own:
                counts = _counts(other.curve)
                axes.plot(counts, 100 * other.curve, color=FAINT, linewidth=0.7, alpha=0.6)
        colour = COLOURS[index % len(COLOURS)]
        axes.fill_between(
            _counts(own.low), 100 * own.low, 100 * own.high, color=colour, alpha=0.18, linewidth=0
        )
        axes.plot(_counts(own.curve), 100 * own.curve, color=colour, linewidth=1.8)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def budget_figure(curves: Mapping[str, Mapping[int, Estimate]], budget: int) -> Figure:
    """Return all methods in one panel: scores in percent by number of trials, with intervals.

    A dashed line marks the number of trials that the verdicts are at; a second panel names colours.
    """
    figure, (axes, names) = panel_grid(2, 2, max(2.7, 0.5 + 0.17 * len(curves)))
    axes.axvline(budget, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    handles = []
    for index, (method, estimates) in enumerate(curves.items()):
        colour, line = COLOURS[index % len(COLOURS)], _LINES[index // len(COLOURS) % len(_LINES)]
        counts = np.array(list(estimates), dtype=float)
        means = 100 * np.array([one.mean for one in estimates.values()])
        halves = 100 * np.array([one.half_width or 0.0 for one in estimates.values()])
        axes.fill_between(
            counts, means - halves, means + halves, color=colour, alpha=0.10, linewidth=0
        )
        axes.plot(counts, means, color=colour, linewidth=1.8, linestyle=line)
        label = shorten(method, 40)
        handles.append(Line2D([], [], color=colour, linewidth=1.8, linestyle=line, label=label))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    name_x(axes, "trials of the search")
    share_scale([axes], f"test {METRICS[PRIMARY]} (%)")
    only_names(names, handles)
    return figure


def _counts(curve: Array) -> Array:
    return np.arange(1, len(curve) + 1, dtype=float)


def importance_figure(importances: Mapping[str, Importance]) -> Figure:
    """Return one panel per method: a bar for each parameter in percent, and the noise dashed."""
    rows = max(len(importance.shares) for importance in importances.values())
    figure, grid = panel_grid(len(importances), 3, 0.62 + 0.3 * rows, left=0.1)
    for axes, (method, importance) in zip(grid, importances.items(), strict=True):
        title(axes, method)
        name_x(axes, "share of the variance (%)")
        for row, (name, share) in enumerate(importance.shares.items()):
            colour = COLOURS[0] if share > importance.noise else FAINT
            axes.barh(row + 0.2, 100 * share, height=0.3, color=colour)
            axes.text(
                0, row - 0.2, shorten(name, 34), fontsize=SMALL, color=INK, va="center",
                parse_math=False,
            )  # fmt: skip
        axes.axvline(100 * importance.noise, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_yticks([])
        axes.set_ylim(rows - 0.4, -0.5)
        axes.set_xlim(0, 100)
    return figure


def method_figure(
    method: MethodResults, runs: Sequence[TrialRecord], metric: str = METRICS[PRIMARY]
) -> Figure:
    """Return validation in percent of every trial by parameter, and of ``runs`` by epoch and fold.

    The winner of the search is a diamond among the trials, and dashed among the curves.
    """
    best = winner(method)
    names = method.searched if best is not None else ()
    shown = [*runs, *([best] if best is not None else [])]
    folds = max((len(run.curves) for run in shown), default=0)
    figure, grid = panel_grid(len(names) + folds, 4, _HEIGHT)
    slices, curves = grid[: len(names)], grid[len(names) :]
    for panels in (slices, curves):
        share_scale(panels, _validation(metric))
    for axes, name in zip(slices, names, strict=True):
        _slice_panel(axes, method, name, best)
    for fold, axes in enumerate(curves):
        title(axes, f"fold {fold}")
        name_x(axes, "epoch")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for run in shown:
            _curve(axes, run, fold, run is best)
    return figure


def _slice_panel(axes: Axes, method: MethodResults, name: str, best: TrialRecord | None) -> None:
    sound = [t for t in method.search if completed(t) and t.diverged is None]
    lost = [t for t in method.search if t.diverged is not None]
    name_x(axes, shorten(name, 26))
    if name in method.logarithmic:
        _logarithmic(axes, [t.params[name] for t in (*sound, *lost)])
    values = [100 * (t.value or 0.0) for t in sound]
    axes.plot([_place(t.params[name]) for t in sound], values, "o", **_TRIAL)
    if lost:
        _crosses(axes, [_place(t.params[name]) for t in lost])
    if best is not None:
        axes.plot([_place(best.params[name])], [100 * (best.value or 0.0)], "D", **_WINNER)


def _curve(axes: Axes, run: TrialRecord, fold: int, won: bool) -> None:
    """A fold's finite validation values by epoch, and a dot at its best trained epoch."""
    curve = run.curves[fold] if fold < len(run.curves) else ()
    points = [(epoch, 100 * value) for epoch, value in curve if math.isfinite(value)]
    if points:
        style: dict[str, Any] = {"color": COLOURS[0], "linewidth": 1.0, "alpha": 0.6}
        if won:
            style = {"color": COLOURS[1], "linewidth": 1.4, "linestyle": (0, (4, 2))}
        axes.plot(*zip(*points, strict=True), **style)
        if trained := [point for point in points if point[0] > 0]:
            dot = max(trained, key=lambda point: point[1])
            axes.plot(*dot, "o", **_BEST_EPOCH | {"color": style["color"]})


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    if max(values) / min(values) < 100:  # powers of ten alone would leave one tick, or none
        axes.xaxis.set_major_locator(FixedLocator(log_ticks(min(values), max(values))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def log_ticks(low: float, high: float) -> list[float]:
    """Two to four round values between two positive ones; both ends where there are none."""
    exponents = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for digits in _ROUND:
        # As text, so that 3 * 10**-1 is 0.3.
        values = (float(f"{digit}e{exponent}") for exponent in exponents for digit in digits)
        ticks = [value for value in values if low <= value <= high]
        if len(ticks) >= 2:
            return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
    return sorted({low, high})


def _place(value: Any) -> Any:
    """Choices are drawn by name, numbers at their place."""
    return str(value) if isinstance(value, str | bool) or value is None else value
