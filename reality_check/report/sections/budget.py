"""Whether the searches had enough trials, and which method would have led with fewer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from reality_check.config.metrics import Metric
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import BudgetCurve, budget_figure
from reality_check.report.sections.blocks import Footnote, PlainTable, Section
from reality_check.report.sections.tuning import leading_sentences
from reality_check.report.summary import Evidence, Summary, sound_reproductions
from reality_check.report.wording import NOTHING, counted, difference_text, score_text
from reality_check.results import MethodResults, ranking_scores
from reality_check.statistics import expected_best, expected_best_band

#: Fewest trials from which the gain of more trials is estimated.
_MIN_TRIALS = 20

_FOOTNOTE = (
    "The trials are taken in a random order, while a sampler that learns puts its better ones "
    "last, so with fewer trials the search itself would have found less. All of it is validation: "
    "it says who would have been chosen, not who would have won on the test classes."
)


@dataclass(frozen=True)
class Budget:
    """The expected best score of one method by number of trials.

    Attributes:
        method: name of the method.
        curve: expected best score of n trials, for n from 1 to all of them.
        spread: standard deviation of a retraining's validation score; ``None`` for fewer than two
            retrainings.
    """

    method: str
    curve: NDArray[np.float64]
    spread: float | None

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.curve)

    @property
    def half(self) -> int:
        """Half of the trials, rounded up."""
        return math.ceil(self.trials / 2)

    @property
    def best_of_half(self) -> float:
        """Expected best score of half of the trials."""
        return float(self.curve[self.half - 1])

    @property
    def gain(self) -> float:
        """Expected gain by the second half of the trials."""
        return float(self.curve[-1]) - self.best_of_half


def budgets(summary: Summary) -> list[Budget]:
    """Return the budget of each method with one search of twenty complete trials or more."""
    if summary.evidence is Evidence.SUBSETS:
        return []  # the curves of test scores are more informative
    shown = []
    for method in summary.results.methods:
        values, searches = _values(method), {trial.search for trial in method.search}
        if method.searched and len(searches) == 1 and len(values) >= _MIN_TRIALS:
            shown.append(Budget(method.name, expected_best(values), _spread(method)))
    return shown


def budget_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` before any method has twenty trials."""
    shown = budgets(summary)
    if not shown:
        return None
    lines = leading_sentences({b.method: dict(enumerate(b.curve, 1)) for b in shown})
    figure, table = _figure(summary, shown), _table(shown, summary.results.selected_by)
    footnote = Footnote(_FOOTNOTE)
    return Section("budget", "Was the budget enough?", (*lines, figure, table, footnote))


def _table(budgets: list[Budget], metric: Metric) -> PlainTable:
    """Return the table of budgets."""
    header = ("Method", "Trials", "Best", "Expected best of half", "Gain", "Spread")
    rows = tuple(
        (
            budget.method,
            str(budget.trials),
            score_text(budget.curve[-1], metric),
            f"{score_text(budget.best_of_half, metric)} ({counted(budget.half, 'trial')})",
            difference_text(budget.gain, metric),
            NOTHING if budget.spread is None else difference_text(budget.spread, metric),
        )
        for budget in budgets
    )
    scale = " in percent, differences in points" if metric.percent else ""
    caption = (
        f"Validation score{scale}; gain: what the second half of the "
        "trials is expected to have brought; spread: standard deviation of one retraining of the "
        "winner. Where the gain is larger, more trials may well have found better parameters."
    )
    return PlainTable(caption, header, rows)


def _figure(summary: Summary, budgets: list[Budget]) -> ReportFigure:
    """Return the figure of expected best scores, with bands up to half of the trials."""
    curves, metric = {}, summary.results.selected_by
    for budget in budgets:
        low, high = expected_best_band(_values(summary.records[budget.method]))
        trials, half = np.arange(1.0, budget.trials + 1), budget.half
        curves[budget.method] = BudgetCurve(trials, budget.curve, low[:half], high[:half])
    caption = (
        f"Expected best validation {metric.title} of n trials, up to half of the "
        "trials with a 95 % band that holds for any distribution of scores (Lourie, Cho and He, "
        "2024)."
    )
    alt = "Expected best validation by number of trials. " + " ".join(
        f"{budget.method}: {score_text(budget.curve[0], metric)} with 1, "
        f"{score_text(budget.best_of_half, metric)} with {budget.half}, "
        f"{score_text(budget.curve[-1], metric)} with {budget.trials}."
        for budget in budgets
    )
    draw = partial(budget_figure, curves, f"validation {metric.title}", in_percent=metric.percent)
    return ReportFigure("expected_best", caption, alt, draw)


def _values(method: MethodResults) -> list[float]:
    """Return the scores of all complete trials; a diverged one counts as 0, as in the search."""
    return ranking_scores([trial for trial in method.search if trial.state == "complete"])


def _spread(method: MethodResults) -> float | None:
    """Return :attr:`Budget.spread` of a method."""
    sound = [run.value or 0.0 for run in sound_reproductions(method)]
    return float(np.std(sound, ddof=1)) if len(sound) > 1 else None
