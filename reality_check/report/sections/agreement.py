"""Agreement of validation and test, and the winner's curse of the searches."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reality_check.config.metrics import Metric
from reality_check.report.sections.blocks import Bullets, Footnote, PlainTable, Section
from reality_check.report.summary import Summary, sound_reproductions, winner
from reality_check.report.wording import (
    NOTHING,
    difference_text,
    interval_text,
    p_text,
    score_text,
    true_minus,
)
from reality_check.results import MethodResults
from reality_check.statistics import (
    Estimate,
    prediction_interval,
    rank_agreement,
    t_interval,
)

_FOOTNOTE = (
    "Winner's curse: a trial that is best of many was also lucky; its retrainings show its level "
    "without that luck."
)


def agreement_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` before any winner has been retrained."""
    curses = [curse for method in summary.results.methods if (curse := _curse(method))]
    if not curses or summary.scores_own_networks:
        return None
    metric = summary.results.selected_by
    lines = [_curse_sentence([gap.mean for _, _, gap, _ in curses], metric)]
    for category in summary.categories:
        lines += _agreement_sentence(summary, category)
    blocks = Bullets(tuple(lines)), _table(curses, metric), Footnote(_FOOTNOTE)
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
    # There is a single pair of rankings: by validation and by test.
    agreement = rank_agreement([(validation, means)])
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


#: A method, its winner's score in the search, the mean of the gaps between this score and those of
#: the winner's retrainings, and the retrainings' scores.
_Curse = tuple[MethodResults, float, Estimate, tuple[float, ...]]


def _curse(method: MethodResults) -> _Curse | None:
    """Return a method's scores, or ``None`` without a search or a retrained winner."""
    best = winner(method)
    if best is None or best.value is None or len(method.search) < 2:
        return None
    # Without retrainings of the winners of other searches
    retrained = tuple(
        run.value or 0.0
        for run in sound_reproductions(method)
        if run.retrained is None or (run.search, run.retrained) == (best.search, best.trial_index)
    )
    if not retrained:
        return None
    return method, best.value, t_interval([best.value - value for value in retrained]), retrained


def _table(curses: list[_Curse], metric: Metric) -> PlainTable:
    """Return the table of winners and their retrainings."""
    header = ("Method", "Winner in the search", "Retrained", "Gap", "One more retraining", "n")
    rows = []
    for method, best, gap, retrained in curses:
        half = "" if gap.half_width is None else f" ± {difference_text(gap.half_width, metric)}"
        expected = [score_text(end, metric) for end in prediction_interval(retrained) or ()]
        rows.append(
            (
                method.name,
                score_text(best, metric),
                interval_text(t_interval(retrained), metric.percent),
                f"{difference_text(gap.mean, metric)}{half}",
                " to ".join(expected) or NOTHING,
                str(gap.n),
            )
        )
    percent, in_points = (" in percent", ", in points") if metric.percent else ("", "")
    caption = (
        f"Validation score{percent}. Gap: the winner's value minus the mean of its retrainings"
        f"{in_points}; “one more retraining”: where 95 % of them are expected."
    )
    return PlainTable(caption, header, tuple(rows))
