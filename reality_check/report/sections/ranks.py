"""Ranks of the methods: over metrics and categories, and over common seeds with a test."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.figures.comparison import ranks_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import Block, Bullets, Folded, Note, PlainTable, Section
from reality_check.report.text import counted, listed, p_text
from reality_check.statistics import Ranking

#: With two methods ranks say less than the difference.
_FEWEST = 3

_NOTE = (
    "Ranks ignore by how much methods differ: one that is always slightly ahead ranks like "
    "one that is far ahead. They depend on which other methods take part. The metrics and "
    "categories of the table are of the same runs, so it is a summary, not a test."
)


def ranks_section(analysis: Analysis) -> Section | None:
    """Return the section; ``None`` for fewer than three methods, or before all have results."""
    if len(analysis.summary.methods) < _FEWEST or not any(analysis.mean_ranks.values()):
        return None
    rankings = {c: r for c, r in analysis.rankings.items() if len(r.methods) >= _FEWEST}
    blocks: list[Block] = [Bullets(tuple(rank_sentence(c, r) for c, r in rankings.items()))]
    if enough := {category: ranking for category, ranking in rankings.items() if ranking.enough}:
        blocks.append(_figure(enough))
    blocks += [Folded("Ranks by metric and category", (_table(analysis),)), Note(_NOTE)]
    return Section("ranks", "Ranks", tuple(blocks))


def rank_sentence(category: str, ranking: Ranking) -> str:
    """Return one sentence on the ranks of one category over common seeds."""
    methods, seeds = len(ranking.methods), counted(ranking.blocks, "common seed")
    best = f"{ranking.methods[0]} has the best mean rank ({ranking.mean_ranks[0]:.2f} of {methods})"
    if not ranking.enough:
        return (
            f"{category}: {best} over {seeds}, but that is too few to distinguish any two of "
            f"{methods} methods by ranks (at least {ranking.blocks_needed})."
        )
    test = f"Friedman {p_text(ranking.p_value)}, {seeds}"
    if not ranking.distinct:
        return f"{category}: {best}, but ranks do not distinguish the methods ({test})."
    critical = f"critical difference {ranking.critical_difference:.2f}"
    last = next((last for first, last in ranking.groups if first == 0), 0)
    if last == 0:
        return f"{category}: {best}, distinguishable from all others ({test}, {critical})."
    close = listed(list(ranking.methods[1 : last + 1]))
    return f"{category}: {best}, not distinguishable from {close} ({test}, {critical})."


def _table(analysis: Analysis) -> PlainTable:
    ranks = {method: own for method, own in analysis.mean_ranks.items() if own}
    cells = list(next(iter(ranks.values())))
    means = {method: sum(own.values()) / len(own) for method, own in ranks.items()}
    header = ("Method", "Mean", *(f"{category} {METRICS[m]}" for category, m in cells))
    rows = tuple(
        (method, f"{means[method]:.2f}", *(f"{ranks[method][cell]:g}" for cell in cells))
        for method in sorted(ranks, key=means.__getitem__)
    )
    return PlainTable("Rank of each mean, 1 is the best; ties share theirs.", header, rows)


def _figure(rankings: dict[str, Ranking]) -> ReportFigure:
    caption = (
        f"Mean ranks on {METRICS[PRIMARY]} over common seeds. A bar joins methods whose ranks do "
        "not differ by more than the critical difference (Nemenyi, 95 %)."
    )
    alt = "Critical-difference diagram. " + " ".join(
        f"{category}: "
        + ", ".join(
            f"{method} {rank:.2f}"
            for method, rank in zip(ranking.methods, ranking.mean_ranks, strict=True)
        )
        + f"; critical difference {ranking.critical_difference:.2f}."
        for category, ranking in rankings.items()
    )
    return ReportFigure("ranks", caption, alt, partial(ranks_figure, rankings))
