"""The report's figures: intervals, search histories and validation curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.figures.plotting import (
    COLOURS,
    INK,
    SMALL,
    TEXT,
    WIDTH,
    legend,
    new_figure,
    note,
    panel_grid,
    panels,
    render,
    shorten,
    title,
)
from reality_check.report.statistics import t_interval
from reality_check.report.summary import Summary, completed, winner
from reality_check.report.text import interval_text
from reality_check.results import MethodResults, TrialRecord

#: What curves begin with.
UNTRAINED_NOTE = "Epochs −1 (the trunk alone) and 0 (the untrained network) are never chosen."


@dataclass(frozen=True)
class DrawnFigure:
    """A figure as files.

    Attributes:
        stem: file name without ending.
        caption: one or two sentences below it.
        alt: what it shows, for readers who cannot see it.
        files: its bytes by ending: ``png``, ``pdf``, ``svg``.
    """

    stem: str
    caption: str
    alt: str
    files: dict[str, bytes]


def draw_figures(summary: Summary) -> list[DrawnFigure]:
    """Return every figure that the results have data for; intervals of MAP@R come first."""
    drawn = []
    for metric, label in METRICS.items():
        if any(summary.samples(category, metric) for category in summary.categories):
            caption = (
                f"{label} of every reproduction (dots), mean and 95 % t-interval (line). "
                "Each category has its own scale."
            )
            figure = intervals_figure(summary, metric)
            alt = intervals_alt(summary, metric)
            drawn.append(DrawnFigure(f"intervals_{metric}", caption, alt, render(figure)))
    if any(method.search for method in summary.results.methods):
        caption = (
            "Validation MAP@R of every search trial (dots, mean over folds) and the best so far "
            "(line). A cross on the bottom edge is a trial that diverged: it counts as 0."
        )
        figure = search_figure(summary)
        alt = "Search history of each method. " + _search_alt(summary)
        drawn.append(DrawnFigure("search_history", caption, alt, render(figure)))
    if any(best.curves for m in summary.results.methods if (best := winner(m))):
        caption = (
            "Validation MAP@R of each fold of the winning trial; the dot is the best trained "
            f"epoch. {UNTRAINED_NOTE}"
        )
        figure = validation_figure(summary)
        alt = "Validation curves of the winning trial of each method, one line a fold."
        drawn.append(DrawnFigure("validation_curves", caption, alt, render(figure)))
    return drawn


def intervals_figure(summary: Summary, metric: str = PRIMARY) -> Figure:
    """Return means with intervals and single reproductions: a panel per category, in percent."""
    count = len(summary.categories)
    figure = new_figure(WIDTH, 1.0 + 0.29 * max(2, len(summary.methods)))
    for index, axes in enumerate(panels(figure, count, max(1, count), sharey=True)):
        category = summary.categories[index]
        samples = summary.samples(category, metric)
        for row, method in enumerate(summary.methods):
            if method in samples:
                _interval_row(axes, row, samples[method], COLOURS[row % len(COLOURS)])
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


def intervals_alt(summary: Summary, metric: str) -> str:
    """Return the figure's content in words: the means of each category in percent."""
    parts = []
    for category in summary.categories:
        means = [
            f"{method} {interval_text(t_interval(values))} (n = {len(values)})"
            for method, values in summary.samples(category, metric).items()
        ]
        parts.append(f"{category}: {'; '.join(means) or 'no results yet'}.")
    return f"{METRICS.get(metric, metric)} in percent. " + " ".join(parts)


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


def validation_figure(summary: Summary) -> Figure:
    """Return one panel per method: the winner's validation curves in percent, a line a fold."""
    found = [(m.name, best) for m in summary.results.methods if (best := winner(m)) is not None]
    shown = [(name, best) for name, best in found if best.curves]
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


def _interval_row(axes: Axes, row: int, values: tuple[float, ...], colour: str) -> None:
    """One method in one category: its dots above its interval."""
    finite = [100 * value for value in values if math.isfinite(value)]
    lift = [row - 0.17 - 0.10 * (index % 2) for index in range(len(finite))]
    axes.plot(finite, lift, "o", color=colour, markersize=3.4, alpha=0.65, markeredgewidth=0)
    interval = t_interval(values)
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


def _search_alt(summary: Summary) -> str:
    parts = []
    for method in summary.results.methods:
        best = winner(method)
        value = (
            f"best {100 * (best.value or 0.0):.2f} % at trial {best.trial_index}"
            if best
            else "none"
        )
        parts.append(f"{method.name}: {len(method.search)} trials, {value}.")
    return " ".join(parts)
