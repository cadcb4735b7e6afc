"""Figures of searches and trainings: scores by budget, by hyper-parameter and by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from reality_check.config.metrics import Metric
from reality_check.report.figures.plotting import (
    COLOURS,
    FAINT,
    INK,
    label_x,
    panel_grid,
    share_scale,
    shorten,
    show_legend,
    title,
)
from reality_check.report.summary import completed, winner
from reality_check.results import MethodResults, TrialRecord

Array = NDArray[np.float64]
_WINNER_STYLE: dict[str, Any] = {"color": COLOURS[1], "markersize": 6, "markeredgewidth": 0}
_BEST_EPOCH_STYLE: dict[str, Any] = {"markersize": 3.6, "alpha": 0.8, "markeredgewidth": 0}
#: Note on the first epochs of learning curves.
UNTRAINED_EPOCHS = "Epochs −1 (the trunk alone) and 0 (the untrained network) are never chosen."
#: Line styles; the next one is used when the colours are used up.
_LINE_STYLES = ("-", (0, (5, 2)), (0, (1, 1.5)))
_TRIAL_STYLE: dict[str, Any] = {"color": COLOURS[0], "markersize": 3.4, "alpha": 0.75}
#: Height of a panel's cell in inches.
_CELL_HEIGHT = 1.65


@dataclass(frozen=True)
class BudgetCurve:
    """Scores of a method by number of trials; the band may end before the curve does."""

    trials: Array
    values: Array
    low: Array
    high: Array


def budget_figure(
    curves: Mapping[str, BudgetCurve],
    label: str,
    budget: int | None = None,
    in_percent: bool = True,
) -> Figure:
    """Plot scores by number of trials, with bands and a legend; all methods share a panel.

    Args:
        curves: curves by method.
        label: label of the scores, e.g. ``"test MAP@R"``.
        budget: a number of trials to mark, or ``None``.
        in_percent: whether scores are fractions, which are shown in percent.
    """
    factor = 100 if in_percent else 1
    figure, (axes, legend) = panel_grid(2, 2, max(2.7, 0.5 + 0.17 * len(curves)))
    if budget is not None:
        axes.axvline(budget, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    handles = []
    for index, (method, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        line = _LINE_STYLES[index // len(COLOURS) % len(_LINE_STYLES)]
        band_trials = curve.trials[: len(curve.low)]
        low, high = factor * curve.low, factor * curve.high
        axes.fill_between(band_trials, low, high, color=colour, alpha=0.10, linewidth=0)
        style: dict[str, Any] = {"color": colour, "linewidth": 1.8, "linestyle": line}
        axes.plot(curve.trials, factor * curve.values, **style)
        handles.append(Line2D([], [], label=shorten(method, 40), **style))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    label_x(axes, "trials of the search")
    share_scale([axes], f"{label} (%)" if in_percent else label)
    show_legend(legend, handles)
    return figure


def method_figure(method: MethodResults, runs: Sequence[TrialRecord], metric: Metric) -> Figure:
    """Plot validation scores: of all trials by parameter, and of ``runs`` by epoch and fold.

    The winner of the search is a diamond among the trials, and a dashed line among the curves.
    """
    best, factor = winner(method), 100 if metric.percent else 1
    names = method.searched if best is not None else ()
    drawn_runs = [*runs] if best is None else [*runs, best]
    folds = max((len(run.curves) for run in drawn_runs), default=0)
    figure, grid = panel_grid(len(names) + folds, 4, _CELL_HEIGHT)
    slices, curves = grid[: len(names)], grid[len(names) :]
    for panels in (slices, curves):
        share_scale(panels, f"validation {metric.title}{' (%)' if metric.percent else ''}")
    if best is not None:
        for axes, name in zip(slices, names, strict=True):
            _slice_panel(axes, method, name, best, factor)
    for fold, axes in enumerate(curves):
        title(axes, f"fold {fold}")
        label_x(axes, "epoch")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        for run in drawn_runs:
            _curve(axes, run, fold, run is best, factor)
    return figure


def _slice_panel(
    axes: Axes, method: MethodResults, name: str, best: TrialRecord, factor: int
) -> None:
    """Draw the trials' scores by a parameter; ``factor`` turns scores into the unit of the axis."""
    sound = [t for t in method.search if completed(t) and t.diverged is None]
    diverged = [t for t in method.search if t.diverged is not None]
    label_x(axes, shorten(name, 26))
    if name in method.logarithmic:
        _logarithmic(axes, [t.params[name] for t in (*sound, *diverged)])
    values = [factor * (t.value or 0.0) for t in sound]
    axes.plot([_axis_value(t.params[name]) for t in sound], values, "o", **_TRIAL_STYLE)
    if diverged:  # crosses on the bottom edge
        edge, crosses = axes.get_xaxis_transform(), [_axis_value(t.params[name]) for t in diverged]
        axes.plot(crosses, [0.0] * len(crosses), "x", color=INK, transform=edge, clip_on=False)
    position = _axis_value(best.params[name])
    axes.plot([position], [factor * (best.value or 0.0)], "D", **_WINNER_STYLE)


def _curve(axes: Axes, run: TrialRecord, fold: int, is_winner: bool, factor: int) -> None:
    """Draw a fold's validation scores by epoch, and a dot at its best trained epoch."""
    curve = run.curves[fold] if fold < len(run.curves) else ()
    points = [(epoch, factor * value) for epoch, value in curve if math.isfinite(value)]
    if points:
        style: dict[str, Any] = {"color": COLOURS[0], "linewidth": 1.0, "alpha": 0.6}
        if is_winner:
            style = {"color": COLOURS[1], "linewidth": 1.4, "linestyle": (0, (4, 2))}
        axes.plot(*zip(*points, strict=True), **style)
        if trained := [point for point in points if point[0] > 0]:
            dot = max(trained, key=lambda point: point[1])
            axes.plot(*dot, "o", color=style["color"], **_BEST_EPOCH_STYLE)


def _logarithmic(axes: Axes, values: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, with ticks that suit the values."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    ratio = max(values) / min(values)
    if ratio < 100:  # powers of ten alone would leave one tick, or none
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)) if ratio >= 10 else MaxNLocator(3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))


def _axis_value(value: Any) -> Any:
    """Return a value as its axis needs it: a number, or the text of a choice."""
    return str(value) if isinstance(value, str | bool) or value is None else value
