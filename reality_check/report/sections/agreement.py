"""Agreement of validation and test, and the winner's curse of the searches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from reality_check.config.metrics import Metric
from reality_check.report.sections.blocks import Bullets, Footnote, Section
from reality_check.report.summary import Summary, sound_reproductions, winner
from reality_check.report.wording import difference_text, p_text, true_minus
from reality_check.results import MethodResults
from reality_check.statistics import rank_agreement

_FOOTNOTE = (
    "Winner's curse: a trial that is best of many was also lucky; its retrainings show its level "
    "without that luck."
)


def agreement_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` before any winner has been retrained."""
    curses = [c for method in summary.results.methods if (c := _curse(method)) is not None]
    if not curses or summary.scores_own_networks:
        return None
    lines = [_curse_sentence(curses, summary.results.selected_by)]
    for category in summary.categories:
        lines += _agreement_sentence(summary, category)
    blocks = Bullets(tuple(lines)), Footnote(_FOOTNOTE)
    return Section("agreement", "Validation and test", blocks)


def _curse_sentence(gaps: list[float], metric: Metric) -> str:
    """Return a sentence on how far winners scored above their retrainings.

    Args:
        gaps: the winner's score minus the mean of its retrainings, of each method.
        metric: the metric of these scores.
    """
    mean = math.fsum(gaps) / len(gaps)
    unit = " points" if metric.percent else ""
    average = f"by {difference_text(mean, metric)}{unit} of validation score."
    if len(gaps) == 1:
        side = "above" if mean > 0 else "not above"
        return f"The winner of the search scored {side} the mean of its retrainings {average}"
    return (
        f"{sum(gap > 0 for gap in gaps)} of {len(gaps)} winners scored above the mean of their "
        f"retrainings; on average {average}"
    )


def _agreement_sentence(summary: Summary, category: str) -> Iterator[str]:
    """Yield a sentence on how similarly the winners' validation and the test order the methods.

    Nothing is yielded for fewer than two methods.
    """
    tests, validation, means = summary.estimates(category), [], []
    for method in summary.results.methods:
        best = winner(method)
        if best is not None and best.value is not None and method.name in tests:
            validation.append(best.value)
            means.append(tests[method.name].mean)
    if len(means) < 2 or not all(map(math.isfinite, means)):
        return
    agreement = rank_agreement(validation, means)
    if not math.isfinite(agreement.correlation):
        yield f"{category}: Winners' validation or test does not vary (n = {agreement.n} methods)."
        return
    sentence = (
        f"{category}: Winners' validation and test order {agreement.alike} of {agreement.pairs} "
        f"pairs the same way (Spearman {true_minus(agreement.correlation)}, n = {agreement.n} "
        f"methods, {p_text(agreement.p_value)})"
    )
    if agreement.p_value >= 0.05:
        sentence += ": not enough to say that they agree"
    elif agreement.correlation < 0:
        sentence += ": they disagree"
    yield f"{sentence}."


def _curse(method: MethodResults) -> float | None:
    """Return how far the winner scored above the mean of its retrainings, ``None`` if unknown."""
    best = winner(method)
    if best is None or best.value is None or len(method.search) < 2:
        return None
    # Without retrainings of the winners of other searches
    retrained = [
        run.value or 0.0
        for run in sound_reproductions(method)
        if run.retrained is None or (run.search, run.retrained) == (best.search, best.trial_index)
    ]
    return best.value - fmean(retrained) if retrained else None
