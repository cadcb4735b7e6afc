"""The verdict in sentences, a table and a figure: which methods are above which others."""

from __future__ import annotations

import dataclasses
from functools import partial
from statistics import fmean
from typing import Any

from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.figures.comparison import differences_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import (
    Block,
    Bullets,
    Folded,
    Footnote,
    Heading,
    PlainTable,
    Section,
)
from reality_check.report.sections.untrained import untrained_sentence
from reality_check.report.summary import Evidence, Summary
from reality_check.report.wording import (
    NOTHING,
    counted,
    listed,
    p_text,
    percent,
    points,
    rounded,
    size_text,
)
from reality_check.statistics import CONFIDENCE, Bounds, Comparison, Weakness

#: Number of pairs of a category that are put into sentences; the table has all pairs.
_MAX_SENTENCES = 3

#: Keys of a pair in ``comparisons.csv`` and ``summary.json``. Differences are fractions; the ends
#: of an interval have the suffixes ``_low`` and ``_high``.
PAIR_KEYS = (
    "category", "metric", "better", "other", "verdict", "n_better", "n_other",
    "difference", "low", "high", "any_classes_low", "any_classes_high",
    "p", "holm_p", "pairs_tested",
    "probability_of_improvement", "probability_of_improvement_low",
    "probability_of_improvement_high",
)  # fmt: skip
_FOOTNOTE = (
    "95 %: interval of the difference, as in the sentences.{} P(A > B): the probability that a run "
    "of the better method, or the winner of a search, is above one of the other."
)
_FOOTNOTE_ON_CLASSES = (
    " Any classes: the interval if other test classes had been drawn and the networks trained "
    "again (classes resampled with all their queries). Both are of single pairs."
)

#: What the intervals of a report cover, and what they do not.
NOISE_TEXTS = {
    Evidence.SEARCHES: (
        "Every interval is over independent searches, so it covers the luck of the search and of "
        "the training. It does not cover another split of the data."
    ),
    Evidence.SUBSETS: (
        "Every interval is over all subsets of one random search (jackknife over its trials), so "
        "it covers the luck of the search and of the training. It does not cover another split of "
        "the data."
    ),
    Evidence.SETTINGS: (
        "Every method was searched once; intervals cover the retraining of what was found only. "
        "Another search finds other settings, and that can change more than a retraining: nothing "
        "here says that one loss is better than another (protocol.search.kind: repeated, with 3 or "
        "more repeats, or subsets would)."
    ),
    Evidence.VALUES: (
        "Every interval covers training noise only (the same values retrained with fresh seeds). "
        "It covers neither the choice of classes (another split) nor that of the values."
    ),
}

#: Name of the units that n counts in sentences; empty where a number alone is clear.
_UNITS = {
    Evidence.SEARCHES: "searches",
    Evidence.SUBSETS: "effective trials",
    Evidence.SETTINGS: "retrainings",
    Evidence.VALUES: "",
}

#: Why an interval may not hold, or why there is none, by :attr:`Weakness.reason`.
_REASONS = {
    "untested": "only {number} of {of} trials retrained so far, while others win too many searches",
    "diverged": "{number} of {of} retrainings diverged, counted as 0",
    "rare": "{number} of {of} trials far above the others, so that it is hardly known how often a "
    "search finds one",
    "failures": "{number} of {of} trials far below the others, so that it is hardly known how "
    "often a search finds nothing better",
    "coarse": "distinct scores of the {of} retrainings that decide: {number}",
    "apart": "{number} of the {of} retrainings that decide far from the others",
}


def verdict_section(analysis: Analysis) -> Section:
    """Return the section: sentences on the best pairs of each category, and tables of all pairs."""
    summary = analysis.summary
    blocks: list[Block] = []
    if figure := _figure(analysis):
        blocks.append(figure)
    for category in summary.categories:
        pairs = summary.comparisons(category)
        sentences = [pair_sentence(pair, summary) for pair in pairs[:_MAX_SENTENCES]]
        blocks += [Heading(category), Bullets((*sentences, *_remarks(summary, category)))]
        if pairs:
            title = counted(len(pairs), "pair")
            blocks.append(Folded(title, (_table(analysis, category),), headed=False))
        if sentence := correction_sentence(summary, category):
            blocks.append(Footnote(sentence))
    if any(map(summary.comparisons, summary.categories)):
        on_classes = _FOOTNOTE_ON_CLASSES if analysis.differences else ""
        blocks.append(Footnote(_FOOTNOTE.format(on_classes)))
    return Section("verdict", "Verdict", tuple(blocks))


def comparison_records(analysis: Analysis) -> list[dict[str, Any]]:
    """Return all pairs on the primary metric as plain data with the keys :data:`PAIR_KEYS`."""
    records = []
    for category in analysis.summary.categories:
        for pair in analysis.summary.comparisons(category):
            difference = pair.difference
            values = (
                category, PRIMARY, pair.better, pair.other, _verdict_word(pair), *difference.n,
                difference.mean, difference.low, difference.high,
                *_ends_over_classes(analysis, category, pair),
                difference.p_value, pair.adjusted_p, pair.pairs, *_value_and_ends(pair.improvement),
            )  # fmt: skip
            records.append(dict(zip(PAIR_KEYS, values, strict=True)))
    return records


def _verdict_word(pair: Comparison) -> str:
    return "above" if pair.distinct else "not distinguishable"


def _ends_over_classes(
    analysis: Analysis, category: str, pair: Comparison
) -> tuple[float | None, ...]:
    """Return the ends of the interval for other test classes, or ``(None, None)``."""
    return _value_and_ends(analysis.differences.get((category, pair.better, pair.other)))[1:]


def _value_and_ends(bounds: Bounds | None) -> tuple[float | None, ...]:
    """Return an estimate and the ends of its interval, or three times ``None``."""
    return dataclasses.astuple(bounds) if bounds else (None, None, None)


def _table(analysis: Analysis, category: str) -> PlainTable:
    """Return the table of all pairs of a category."""
    classes = ("Any classes",) if analysis.differences else ()
    intervals = (f"Δ {analysis.summary.results.measure}", "95 %", *classes)
    header = ("Better", "Other", *intervals, "Holm p", "P(A > B)", "Verdict")
    rows = tuple(
        (
            pair.better,
            pair.other,
            points(pair.difference.mean),
            range_text(pair.difference.low, pair.difference.high),
            # No cell without such a column
            *(range_text(*_ends_over_classes(analysis, category, pair)) for _ in classes),
            # "0.012" or "< 0.001"
            NOTHING if pair.adjusted_p is None else p_text(pair.adjusted_p).lstrip("p= "),
            probability_text(pair.improvement),
            _verdict_word(pair),
        )
        for pair in analysis.summary.comparisons(category)
    )
    caption = f"{category}: every pair, differences in percentage points."
    return PlainTable(caption, header, rows, words=("Better", "Other", "Verdict"))


def range_text(low: float | None, high: float | None) -> str:
    """Return ``"0.40 to 2.00"``, in percentage points."""
    return NOTHING if low is None or high is None else f"{points(low)} to {points(high)}"


def probability_text(improvement: Bounds | None) -> str:
    """Return ``"0.90 (0.61 to 0.98)"``."""
    if improvement is None:
        return NOTHING
    value, low, high = (rounded(number, 2) for number in dataclasses.astuple(improvement))
    return f"{value} ({low} to {high})"


def of_leader(summary: Summary, category: str) -> list[Comparison]:
    """Return the comparisons of the method with the highest mean with the others."""
    pairs = summary.comparisons(category)
    return [pair for pair in pairs if pair.better == pairs[0].better]


def _figure(analysis: Analysis) -> ReportFigure | None:
    """Return the figure of the leaders' differences, or ``None`` if there are no intervals."""
    summary = analysis.summary
    shown = {}
    for category in summary.categories:
        pairs = of_leader(summary, category)
        if any(pair.difference.half_width for pair in pairs):
            shown[category] = pairs
    if not shown:
        return None
    caption = (
        f"{summary.results.measure} of the best method of each category minus that of the others, "
        "with 95 % intervals"
        + (" (thick), and those for other test classes (thin)." if analysis.differences else ".")
    )
    sentences = [
        f"{category}: {pair_sentence(pair, summary)}"
        for category, pairs in shown.items()
        for pair in pairs
    ]
    draw = partial(differences_figure, shown, analysis.differences, summary.results.measure)
    return ReportFigure("differences", caption, " ".join([caption, *sentences]), draw)


def pair_sentence(comparison: Comparison, summary: Summary) -> str:
    """Return a sentence on a pair of methods, with differences in percentage points."""
    a, b = comparison.better, comparison.other
    relation = f"{a} is above {b}"
    if summary.evidence is Evidence.SETTINGS:
        relation = f"{a} retrains above {b}"
        a, b = f"what was found for {a}", f"what was found for {b}"
    tie = f"{a} is not distinguishable from {b}"
    difference, units = comparison.difference, _UNITS[summary.evidence]
    gap = f"{points(difference.mean)} points {summary.results.measure}"
    sizes = " and ".join(map(size_text, difference.effective_n or difference.n))
    sizes = f"n = {sizes} {units}".rstrip()
    low, high = difference.low, difference.high
    if low is None or high is None or comparison.adjusted_p is None:
        return (
            f"{tie}: a difference of {gap}, but no test with fewer than three "
            f"{units or 'runs'} ({sizes})."
        )
    numbers = f"{100 * CONFIDENCE:.0f} % interval {range_text(low, high)}, {sizes}"
    if comparison.pairs > 1:
        numbers += f", Holm {p_text(comparison.adjusted_p)}"
    if comparison.distinct:
        return f"{relation} by {gap} ({numbers})."
    if low > 0:  # The correction alone makes the pair a tie.
        numbers += f"; alone {p_text(difference.p_value or 0.0)}"
        tie += f" after correction for {comparison.pairs} pairs"
    return f"{tie}: a difference of {gap} ({numbers})."


def _remarks(summary: Summary, category: str) -> list[str]:
    """Return sentences on runs that diverged and on methods without results."""
    samples = summary.samples(category, PRIMARY)
    sentences = []
    if len(samples) == 1:
        sentences.append(f"Only {next(iter(samples))} has results, so there is nothing to compare.")
    for method in summary.methods:
        if divergence := summary.divergence(category, method):
            # Retrainings that diverged have the value 0.
            rows = summary.rows.get((category, PRIMARY, method), ())
            sound = [row.value for row in rows if row.value]
            others = f"; the mean of the others is {percent(fmean(sound))} %" if sound else ""
            reason = _reason(divergence)
            sentences.append(f"{method}: {reason}, which intervals are not made for{others}.")
    missing = [method for method in summary.methods if method not in samples]
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        sentences.append(f"{listed(missing)} {verb} no results in this category yet.")
    return sentences


def control_sentences(summary: Summary) -> list[str]:
    """Return sentences on the difference of each control from the method that it copies."""
    sentences = []
    for category in summary.categories:
        for control, difference in summary.control_differences(category).items():
            method, within = summary.controls[control], ""
            if difference.half_width is not None:
                draws = "other" if summary.records[control].has_own_draws else "the same"
                within = (
                    f"; a copy with {draws} draws stays within {points(difference.half_width)} "
                    "points in 95 % of such experiments"
                )
            sentences.append(
                f"{category}: the same loss against itself ({control} minus {method}) differs by "
                f"{points(difference.mean)} points here{within}."
            )
    return sentences


def _reason(weakness: Weakness) -> str:
    """Return why an interval may not hold or is missing, in words."""
    return _REASONS[weakness.reason].format_map(weakness._asdict())


def correction_sentence(summary: Summary, category: str) -> str:
    """Return a sentence on Holm's correction, or ``""`` if at most one pair is tested."""
    pairs = max((c.pairs for c in summary.comparisons(category)), default=0)
    if pairs < 2:
        return ""
    return (
        f"{pairs} pairs are tested in all categories together, so p-values carry Holm's "
        "correction; the intervals are those of single pairs."
    )


def headline(summary: Summary) -> str:
    """Return the verdict on MAP@R in one or two sentences, or that it is too early for one."""
    if not summary.results.rows:
        return "No results yet: no reproduction has been scored."
    if not summary.results.finished:
        return (
            "Not finished: these are scores so far. The verdict, intervals and tests come when all "
            "planned work is done, since stopping as soon as a result looks good makes false "
            "verdicts too frequent."
        )
    text = "; ".join(
        f"{leader} ({listed(categories)})" for leader, categories in leaders(summary).items()
    )
    return " ".join([f"{text}.", *cautions(summary)])


def leaders(summary: Summary) -> dict[str, list[str]]:
    """Return texts on which method leads on MAP@R, each with the categories where it leads.

    There are none before the experiment is finished.
    """
    categories_of: dict[str, list[str]] = {}
    for category in summary.categories:
        if summary.results.finished and summary.samples(category, PRIMARY):
            categories_of.setdefault(_leader(summary, category), []).append(category)
    return categories_of


def cautions(summary: Summary) -> list[str]:
    """Return cautions about the verdict: its limits, and serious deviations."""
    serious = [deviation.topic for deviation in summary.results.deviations if deviation.serious]
    if not serious:
        return limits(summary)
    them = "the serious deviation" if len(serious) == 1 else f"{len(serious)} serious deviations"
    return [*limits(summary), f"Read it with {them} below: {listed(serious)}."]


def limits(summary: Summary) -> list[str]:
    """Return what limits the verdict: one search, weak intervals, methods that hardly learned."""
    sentences = []
    if summary.evidence is Evidence.SETTINGS:
        sentences.append("One search of each method cannot distinguish losses.")
    # From each reason to whether it leaves no interval; a reason of two categories is there once.
    is_missing = {
        f"{method} ({_reason(weakness)})": weakness.reason == "untested"
        for category in summary.categories
        for method, weakness in summary.weaknesses(category).items()
    }
    for missing, lead in (
        (False, "The interval rests on little and may not hold"),
        (True, "There is no interval and no test"),
    ):
        if texts := [text for text in is_missing if is_missing[text] == missing]:
            sentences.append(f"{lead} for {listed(texts)}.")
    not_better = untrained_sentence(summary)
    return [*sentences, not_better] if not_better else sentences


def _leader(summary: Summary, category: str) -> str:
    """Return in words which method leads a category, and from which it is not distinguishable."""
    comparisons = summary.comparisons(category)
    if not comparisons:
        return f"only {next(iter(summary.samples(category, PRIMARY)))} has results"
    best, rivals = comparisons[0].better, of_leader(summary, category)
    close = [pair.other for pair in rivals if not pair.distinct]
    others = f"{len(close)} others" if len(close) > 3 else listed(close)
    if not close:
        how_many = "both" if len(rivals) == 2 else f"all {len(rivals)}"
        others = f"{how_many} other methods" if len(rivals) > 1 else rivals[0].other
    measure = summary.results.measure
    if summary.evidence is not Evidence.SETTINGS:
        if close:
            return f"{best} leads on {measure}, but is not distinguishable from {others}"
        return f"{best} is above {others} on {measure}"
    if close:
        return (
            f"the settings found for {best} lead on {measure}, but are not "
            f"distinguishable from those of {others}"
        )
    # "those of both other methods", "those found for b"
    those = "those of" if len(rivals) > 1 else "those found for"
    return f"the settings found for {best} retrain above {those} {others} on {measure}"
