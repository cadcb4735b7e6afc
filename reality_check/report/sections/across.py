"""The report over several data sets: one verdict, tables and a forest plot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from reality_check.config.metrics import PRIMARY
from reality_check.report.figures.comparison import forest_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import (
    Block,
    Bullets,
    ComparisonTables,
    Folded,
    Footnote,
    PlainTable,
    Section,
    Strong,
    Verdict,
    WholeReport,
)
from reality_check.report.sections.verdict import NOISE_TEXTS, limits, range_text
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Evidence
from reality_check.report.tables import CLOSE_MARK, Cell, ComparisonTable, TableRow, cells_by_method
from reality_check.report.wording import NOTHING, counted, p_text, percent, points
from reality_check.statistics import MIN_DATA_SETS, Centred, Estimate, SuiteComparison

#: Number of pairs of a category that are put into sentences; the table has all pairs.
_MAX_SENTENCES = 3
_SHARED = (
    "The data sets share draws, or may (their experiments have the same seed, or none is known), "
    "so their p-values are combined by Bonferroni's test, and the errors of means added up, as any "
    "dependence permits. In a suite, each data set has a seed of its own."
)
_INDEPENDENT = "The data sets share no draws, so their p-values are combined by Fisher's test."


def across_sections(summary: SuiteSummary, has_folders: bool) -> list[Section]:
    """Return the sections of the report.

    Args:
        summary: the results.
        has_folders: whether the report of each data set is in a folder of its name beside this.
    """
    names, blocks = list(summary.members), verdict_blocks(summary)
    figures = _figures(summary)
    blocks += figures[:1]
    blocks.append(
        Footnote(
            f"Percent, mean ± half-width of the 95 % interval; every data set counts alike in the "
            f"mean. Within a column, bold: best mean; {CLOSE_MARK}: not distinguishable from it, "
            "by the tests of that data set's own report. The statements over data sets carry one "
            "correction for all pairs, categories and both directions; intervals are those of "
            "single pairs."
        )
    )
    sentences = tuple(
        f"{category}: {pair_sentence(pair, summary)}"
        for category in summary.categories
        for pair in leader_pairs(summary, category)[:_MAX_SENTENCES]
    )
    pairs = [
        Folded(f"{category}: {counted(len(found), 'pair')}", (_table(summary, category),))
        for category, found in summary.comparisons.items()
    ]
    ranks = [_ranks(summary, category) for category in summary.categories]
    links = tuple(WholeReport(name) for name in names) if has_folders else ()
    statistics: tuple[Block, ...] = (
        _INDEPENDENT if summary.results.independent else _SHARED,
        NOISE_TEXTS[summary.evidence],
        _elsewhere_text(len(names)),
        Bullets(sentences),
        *pairs,
        Folded("Ranks on each data set", tuple(ranks)),
        *(
            Folded(f"Figure: {f.caption.partition(':')[0]}", (f,), headed=False)
            for f in figures[1:]
        ),
    )
    return [
        Section("overview", "Overview", tuple(blocks)),
        Section("statistics", "Statistics", statistics),
        Section("data-sets", "Data sets", (_members(summary), *_remarks(summary), *links)),
    ]


def verdict_blocks(summary: SuiteSummary) -> list[Block]:
    """Return the tables of methods by data sets, and the verdict in sentences."""
    tables = tuple(suite_table(summary, category) for category in summary.categories)
    leaders = tuple((Strong(f"{c}:"), f" {text}.") for c, text in headline(summary).items())
    verdict = Verdict((Bullets(leaders),))
    return [ComparisonTables(tables), verdict, *summary.undecided_sentences()]


def suite_table(summary: SuiteSummary, category: str, metric: str = PRIMARY) -> ComparisonTable:
    """Return the table of methods by data sets, with the mean over data sets last."""
    columns = [cells_by_method(member, category, metric) for member in summary.members.values()]
    rows = []
    for method in summary.methods:
        cells = [column.get(method, Cell(None)) for column in columns]
        known = sum(cell.interval is not None for cell in cells)
        mean = summary.mean(category, method) if metric == PRIMARY else None
        cells.append(Cell(None if mean is None else Estimate(mean, None, None, None, known)))
        count = str(known) if known == len(columns) else f"{known} of {len(columns)}"
        rows.append(TableRow(method, tuple(cells), count))
    titles = (*summary.members, "Mean") if metric == PRIMARY else tuple(summary.members)
    return ComparisonTable(f"{summary.measure}, {category}", titles, tuple(rows))


def leader_pairs(summary: SuiteSummary, category: str) -> list[SuiteComparison]:
    """Return the comparisons of the method with the highest mean, if any data set is finished."""
    pairs = summary.comparisons[category]
    return [pair for pair in pairs if pair.better == pairs[0].better and any(pair.differences)]


def headline(summary: SuiteSummary) -> dict[str, str]:
    """Return the verdict by category: what is shown of the method with the highest mean."""
    lines = {}
    for category in summary.categories:
        pairs = leader_pairs(summary, category)
        claims = [_claim(pair, summary) for pair in pairs[:_MAX_SENTENCES]]
        left = len(pairs) - len(claims)
        more = [f"{counted(left, 'more pair')} not listed here"] if left else []
        lines[category] = "; ".join(claims + more) or "nothing to compare yet"
    return lines


def _claim(pair: SuiteComparison, summary: SuiteSummary) -> str:
    """Return on how many data sets a method is shown to be above another one, and below it."""
    names, values = (pair.better, pair.other), (pair.above, pair.below)
    if summary.evidence is Evidence.SETTINGS:
        names = f"what one search found for {pair.better}", f"what one found for {pair.other}"
    shown, count = (pair.num_above, pair.num_below), len(pair.differences)
    if not any(shown):
        p = p_text(pair.above[0])
        return f"{names[0]} is not shown to be above {names[1]} on any of {count} data sets ({p})"
    first = int(not shown[0])  # 1 if only the other direction is shown
    where = f"all {count}" if shown[first] == count else f"at least {shown[first]} of {count}"
    p = p_text(values[first][shown[first] - 1])
    text = f"{names[first]} is above {names[1 - first]} on {where} data sets ({p})"
    if shown[first] < count:
        others = f"at least {shown[1]}" if all(shown) else "none"
        text += f", shown to be below it on {others}, undecided on {count - sum(shown)}"
    return text


def pair_sentence(pair: SuiteComparison, summary: SuiteSummary) -> str:
    """Return a sentence on a pair of methods over all data sets."""
    text = _claim(pair, summary)
    if math.isfinite(pair.mean.mean):
        text += f"; mean difference {points(pair.mean.mean)} points{_interval(pair.mean)}"
        text += f", {percent(pair.relative.mean, 1)} % of the score of {pair.other}"
    if pair.elsewhere is not None:
        mean = points(pair.elsewhere.mean)
        text += f"; on other data sets such as these {mean} points{_interval(pair.elsewhere)}"
    return f"{text}."


def _interval(interval: Centred) -> str:
    if interval.half_width is None:
        return ""
    return f" (95 % interval {range_text(interval.low, interval.high)})"


def _remarks(summary: SuiteSummary) -> Iterator[Block]:
    """Yield the cautions of the reports of the data sets."""
    for name, member in summary.members.items():
        if member.results.finished and (sentences := limits(member)):
            yield Folded(f"Cautions on {name}", (Bullets(tuple(sentences)),))


def _elsewhere_text(count: int) -> str:
    """Return what the results say about other data sets."""
    if count >= MIN_DATA_SETS:
        return (
            "What is said of other data sets takes these as a random sample (random effects, the "
            "interval of Hartung and Knapp with equal weights)."
        )
    return (
        f"All this is about these {count} data sets (fixed effects), which are too few to say what "
        f"would come out on others; with {MIN_DATA_SETS} or more there is an interval for it."
    )


def _table(summary: SuiteSummary, category: str) -> PlainTable:
    """Return the table of all pairs of a category."""
    count = len(summary.members)
    header = (
        "Method",
        "Other",
        *(f"Δ {name}" for name in summary.members),
        "Mean Δ",
        "95 %",
        "Δ %",
    )
    header += (f"Above (of {count})", "p", f"Below (of {count})")
    rows = [
        (
            pair.better,
            pair.other,
            *(NOTHING if d is None else points(d.mean) for d in pair.differences),
            *(
                (points(pair.mean.mean), range_text(pair.mean.low, pair.mean.high))
                if math.isfinite(pair.mean.mean)
                else (NOTHING, NOTHING)
            ),
            percent(pair.relative.mean, 1) if math.isfinite(pair.relative.mean) else NOTHING,
            str(pair.num_above),
            p_text(pair.above[max(pair.num_above, 1) - 1]).lstrip("p= "),
            str(pair.num_below),
        )
        for pair in summary.comparisons[category]
    ]
    caption = (
        f"{category}: every pair, differences in points. Above: on at least so many data sets the "
        "method is above the other one, with the adjusted p-value of that (of at least one where "
        "none is shown)."
    )
    return PlainTable(caption, header, tuple(rows), words=("Method", "Other"))


def _ranks(summary: SuiteSummary, category: str) -> PlainTable:
    """Return the table of the ranks that methods may have on each data set."""
    ranks = [summary.ranks(category, name) for name in summary.members]
    rows = [
        (method, *(" to ".join(dict.fromkeys(map(str, rank[method]))) for rank in ranks))
        for method in summary.methods
    ]
    caption = f"{category}: ranks that the tests of each data set's own report leave open."
    return PlainTable(caption, ("Method", *summary.members), tuple(rows))


def _figures(summary: SuiteSummary) -> list[ReportFigure]:
    """Return a forest plot for each category, of the leader against the other methods."""
    figures = []
    for category in summary.categories:
        if shown := leader_pairs(summary, category):
            caption = (
                f"{category}: {summary.measure} of {shown[0].better} minus that of the others on "
                "each data set, and their mean, with 95 % intervals."
            )
            alt = " ".join([caption, *(pair_sentence(pair, summary) for pair in shown)])
            draw = partial(forest_figure, shown, list(summary.members), summary.measure)
            figures.append(ReportFigure(f"forest_{category}", caption, alt, draw))
    return figures


def _members(summary: SuiteSummary) -> PlainTable:
    """Return the table of the data sets."""
    rows = tuple(
        (
            name,
            dict(member.results.facts).get("Classes", NOTHING),
            member.results.protocol or NOTHING,
            counted(sum(d.serious for d in member.results.deviations), "serious deviation"),
            "finished" if member.results.finished else "not finished",
        )
        for name, member in summary.members.items()
    )
    header = ("Data set", "Classes", "Protocol", "Deviations", "State")
    return PlainTable("What was compared where.", header, rows, words=header)


def pair_records(summary: SuiteSummary) -> list[dict[str, Any]]:
    """Return all pairs as plain data, whose keys docs/suites.md explains; no value is nested."""
    return [
        {
            "category": category,
            "better": pair.better,
            "other": pair.other,
            "above": pair.num_above,
            "below": pair.num_below,
            **{f"p_above_{u}": p for u, p in enumerate(pair.above, 1)},
            **{f"p_below_{u}": p for u, p in enumerate(pair.below, 1)},
            "pairs_tested": pair.pairs,
            **_plain("difference", pair.mean),
            **_plain("relative_difference", pair.relative),
            **_plain("elsewhere", pair.elsewhere),
            **{
                key: value
                for name, difference in zip(summary.members, pair.differences, strict=True)
                for key, value in _plain(f"difference.{name}", difference).items()
            },
        }
        for category, pairs in summary.comparisons.items()
        for pair in pairs
    ]


def _plain(key: str, interval: Centred | None) -> dict[str, float | None]:
    """Return a number and the ends of its interval as fractions."""
    values = (
        (None, None, None) if interval is None else (interval.mean, interval.low, interval.high)
    )
    return dict(zip((key, f"{key}_low", f"{key}_high"), values, strict=True))


def suite_data(summary: SuiteSummary) -> dict[str, Any]:
    """Return the content of ``summary.json``; differences and scores are fractions."""
    pairs = itertools.chain.from_iterable(summary.comparisons.values())
    return {
        "schema": "reality-check-suite",
        "version": 1,
        "name": summary.results.name,
        "finished": summary.results.finished,
        "independent": summary.results.independent,
        "data_sets": list(summary.members),
        "undecided": summary.undecided,
        "verdict": headline(summary),
        "verdicts": [
            record | {"sentence": pair_sentence(pair, summary)}
            for record, pair in zip(pair_records(summary), pairs, strict=True)
        ],
    }
