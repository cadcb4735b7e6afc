"""Test scores by the number of trials that methods are tuned with, and sources of variance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from reality_check.report.analysis import Analysis
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import BudgetCurve, budget_figure
from reality_check.report.sections.blocks import Bullets, Footnote, PlainTable, Section
from reality_check.report.summary import Evidence
from reality_check.report.wording import NOTHING, percent, points
from reality_check.statistics import Estimate

_FOOTNOTE = (
    "A search of fewer trials is any subset of those that were made; the line is the mean over all "
    "subsets, and the band its 95 % interval, which contains the luck of the search and of the "
    "training, and says whether methods can be distinguished. Numbers of trials at which too many "
    "subsets are won by a trial without a test score, or for which the trials are too few, are "
    "left out."
)


def tuning_section(analysis: Analysis) -> Section | None:
    """Return the section, or ``None`` if results are not over subsets of one random search."""
    summary = analysis.summary
    curves = summary.budget_curves
    if not curves:
        return None
    caption = (
        f"Test {summary.results.measure} ({summary.categories[0]}) of what a search of so many "
        f"trials finds, with 95 % intervals; the verdicts are at {summary.budget} (dashed)."
    )
    means = {
        method: {trials: estimate.mean for trials, estimate in estimates.items()}
        for method, estimates in curves.items()
    }
    texts = [
        f"{method}: {', '.join(f'{percent(mean)} with {n}' for n, mean in by_trials.items())}."
        for method, by_trials in means.items()
    ]
    drawn = {method: _curve(estimates) for method, estimates in curves.items()}
    draw = partial(budget_figure, drawn, f"test {summary.results.measure}", summary.budget)
    figure = ReportFigure("tuning_budget", caption, " ".join([caption, *texts]), draw)
    blocks = (Bullets(tuple(leading_sentences(means))), figure, Footnote(_FOOTNOTE))
    return Section("tuning", "Score and tuning budget", blocks)


def _curve(estimates: Mapping[int, Estimate]) -> BudgetCurve:
    """Return a line of estimates by number of trials, with a band of their intervals."""
    means = np.array([estimate.mean for estimate in estimates.values()])
    halves = np.array([estimate.half_width or 0.0 for estimate in estimates.values()])
    return BudgetCurve(np.array(list(estimates), float), means, means - halves, means + halves)


def leading_sentences(curves: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Return a sentence on which method leads with how many trials; none for a single method.

    Args:
        curves: the score at each number of trials, by method.
    """
    # The numbers of trials at which all methods have a score
    common = sorted(set.intersection(*map(set, curves.values())))
    if len(curves) < 2 or not common:
        return []
    leaders = {n: max(curves, key=lambda method: curves[method][n]) for n in common}
    best = leaders[common[-1]]
    others = [n for n in common if leaders[n] != best]  # numbers of trials with another leader
    if not others:
        return [
            f"{best} has the highest estimate with any number of trials from {common[0]} to "
            f"{common[-1]}."
        ]
    return [
        f"With {others[-1]} trials or fewer, another method has the highest estimate than with "
        f"{common[-1]} ({best})."
    ]


def luck_section(analysis: Analysis) -> Section | None:
    """Return the section on what makes scores vary, or ``None`` if that is not known."""
    summary = analysis.summary
    scatter = {
        (method, category): summary.scatter(category, method)
        for method in summary.methods
        for category in summary.categories
    }
    trainings_known = any(shares.training for shares in scatter.values())
    if trainings_known:
        header = ["Method", "Category", "Searches", "Training"]
        causes = "of what searches find, of the training of one winner"
    else:
        header = ["Method", "Category", "Search and training"]
        trials = f" of {summary.budget} trials" if summary.evidence is Evidence.SUBSETS else ""
        causes = f"of what one search{trials} finds and one training makes of it"
    if analysis.uncertainties:
        header.append("Test classes")
        causes += ", and of the mean over other test classes"
    rows = []
    for key, shares in scatter.items():
        if shares.search is not None or shares.training is not None:
            cells = [_deviation(shares.search)]
            if trainings_known:
                cells.append(_deviation(shares.training or None))  # 0: part of the search
            if analysis.uncertainties:
                classes = analysis.uncertainties.get(key)
                cells.append(NOTHING if classes is None else points(classes.deviation))
            rows.append((*key, *cells))
    caption = f"Standard deviations of test {summary.results.measure}, in points: {causes}."
    table = PlainTable(caption, tuple(header), tuple(rows), words=("Method", "Category"))
    return Section("luck", "What moves the scores", (table,)) if rows else None


def _deviation(variance: float | None) -> str:
    """Return the standard deviation in points, or a dash if the variance is not known."""
    return NOTHING if variance is None else points(math.sqrt(variance))
