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
    TEXT,
    WIDTH,
    dress,
    legend,
    new_figure,
    note,
    panel_grid,
    panels,
    shorten,
    title,
)
from reality_check.report.statistics import Estimate
from reality_check.report.summary import Summary, completed, winner
from reality_check.results import Importance, MethodResults, TrialRecord

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


@dataclass(frozen=True)
class BestCurve:
    """The expected best of n trials of a method, and its band for the first few n; fractions."""

    method: str
    curve: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class BudgetCurve:
    """What a method scores by the number of trials that it is tuned with."""

    method: str
    estimates: Mapping[int, Estimate]


def search_figure(summary: Summary) -> Figure:
    """Return one panel per method: every trial's value in percent, the best so far, divergence."""
    methods = [method for method in summary.results.methods if method.search]
    figure, columns = panel_grid(len(methods), 4, 1.65)
    for method, axes in zip(
        methods, panels(figure, len(methods), columns, sharey=True), strict=True
    ):
        title(axes, method.name)
        search_panel(axes, method)
    figure.supxlabel("search trial", fontsize=TEXT, color=INK)
    figure.supylabel("validation MAP@R (%)", fontsize=TEXT, color=INK)
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=4, color=COLOURS[0], label="trial"),
        Line2D([], [], color=COLOURS[1], linewidth=1.6, label="best so far"),
        Line2D([], [], linestyle="", marker="x", color=INK, label="diverged"),
    ]
    legend(figure, handles)
    return figure


def search_panel(axes: Axes, method: MethodResults) -> None:
    """Draw the value of every trial in percent by its number, and the best so far."""
    trials = sorted(method.search, key=lambda trial: trial.trial_index)
    able = [trial for trial in trials if completed(trial) and trial.diverged is None]
    lost = [trial.trial_index for trial in trials if trial.diverged is not None]
    values = [100 * (trial.value or 0.0) for trial in able]
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if able:
        axes.plot(
            [t.trial_index for t in able], values, "o", color=COLOURS[0], markersize=3.4, alpha=0.75
        )
        best = [max(values[: i + 1]) for i in range(len(values))]
        num_trials = [trial.trial_index for trial in able]
        axes.step(num_trials, best, where="post", color=COLOURS[1], linewidth=1.6)
    if lost:
        edge = axes.get_xaxis_transform()
        axes.plot(lost, [0.0] * len(lost), "x", color=INK, transform=edge, clip_on=False)
    if not able:
        note(axes, "every trial diverged" if lost else "no trial complete yet")


def validation_figure(summary: Summary) -> Figure:
    """Return one panel per method: the winner's validation curves in percent, a line a fold."""
    winners = [(m.name, best) for m in summary.results.methods if (best := winner(m)) is not None]
    shown = [(name, best) for name, best in winners if best.curves]
    figure, columns = panel_grid(len(shown), 4, 1.65)
    for (name, best), axes in zip(
        shown, panels(figure, len(shown), columns, sharey=True), strict=True
    ):
        title(axes, name)
        _curves_panel(axes, best)
    figure.supxlabel("epoch", fontsize=TEXT, color=INK)
    figure.supylabel("validation MAP@R (%)", fontsize=TEXT, color=INK)
    folds = max((len(best.curves) for _, best in shown), default=0)
    legend(
        figure,
        [
            Line2D([], [], color=COLOURS[i % len(COLOURS)], linewidth=1.6, label=f"fold {i}")
            for i in range(folds)
        ],
    )
    return figure


def _curves_panel(axes: Axes, best: TrialRecord) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for fold, curve in enumerate(best.curves):
        points = [(epoch, 100 * value) for epoch, value in curve if math.isfinite(value)]
        if not points:
            continue
        colour = COLOURS[fold % len(COLOURS)]
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4)
        mark_best(axes, points, color=colour, markersize=4.5)


def mark_best(axes: Axes, points: Sequence[tuple[int, float]], **style: Any) -> None:
    """Draw a dot on the highest point of a curve that training may choose: of epochs from 1 on."""
    trained = [point for point in points if point[0] > 0]
    if trained:
        axes.plot(*max(trained, key=lambda point: point[1]), "o", **style)


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


def budget_figure(curves: Sequence[BudgetCurve], budget: int) -> Figure:
    """Return all methods in one panel: scores in percent by number of trials, with intervals.

    A dashed line marks the number of trials that the verdicts are at.
    """
    figure = new_figure(WIDTH, 2.7)
    axes = figure.add_subplot(1, 1, 1)
    dress(axes, SMALL)
    axes.axvline(budget, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    handles = []
    for index, curve in enumerate(curves):
        colour, line = COLOURS[index % len(COLOURS)], _LINES[index // len(COLOURS) % len(_LINES)]
        counts = np.array(list(curve.estimates), dtype=float)
        means = 100 * np.array([one.mean for one in curve.estimates.values()])
        halves = 100 * np.array([one.half_width or 0.0 for one in curve.estimates.values()])
        axes.fill_between(
            counts, means - halves, means + halves, color=colour, alpha=0.10, linewidth=0
        )
        axes.plot(counts, means, color=colour, linewidth=1.8, linestyle=line)
        label = shorten(curve.method, 26)
        handles.append(Line2D([], [], color=colour, linewidth=1.8, linestyle=line, label=label))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("trials of the search", fontsize=TEXT, color=INK)
    axes.set_ylabel(f"test {METRICS[PRIMARY]} (%)", fontsize=TEXT, color=INK)
    legend(figure, handles)
    return figure


def _counts(curve: Array) -> Array:
    return np.arange(1, len(curve) + 1, dtype=float)


def importance_figure(importances: Mapping[str, Importance]) -> Figure:
    """Return one panel per method: a bar for each parameter in percent, and the noise dashed."""
    rows = max(len(importance.shares) for importance in importances.values())
    figure, columns = panel_grid(len(importances), 2, 0.5 + 0.21 * rows)
    grid = panels(figure, len(importances), columns, sharey=False)
    for axes, (method, importance) in zip(grid, importances.items(), strict=True):
        title(axes, method)
        names = list(importance.shares)
        shares = [100 * importance.shares[name] for name in names]
        colours = [COLOURS[0] if share > 100 * importance.noise else FAINT for share in shares]
        axes.barh(range(len(names)), shares, height=0.6, color=colours)
        axes.axvline(100 * importance.noise, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
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
        ticks = [value for value in values if low <= value <= high]
        if len(ticks) >= 2:
            return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
    return sorted({low, high})


def _place(value: Any) -> Any:
    """Choices are drawn by name, numbers at their place."""
    return str(value) if isinstance(value, str | bool) or value is None else value


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
