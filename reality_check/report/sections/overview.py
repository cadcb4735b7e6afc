"""The overview: the verdict, and what was compared and how."""

from __future__ import annotations

import math
from statistics import fmean

from reality_check.config.metrics import Stage
from reality_check.report.planning import mean_scatter, scatter_text
from reality_check.report.sections.blocks import (
    Block,
    Bullets,
    ComparisonTables,
    Facts,
    Footnote,
    Section,
    Strong,
    Verdict,
)
from reality_check.report.sections.comparison import interval_figures, legend
from reality_check.report.sections.verdict import cautions, control_sentences, headline, leaders
from reality_check.report.summary import Summary
from reality_check.report.tables import overview_table
from reality_check.report.wording import hours_text, listed, points
from reality_check.statistics import smallest_detectable


def overview_section(summary: Summary, folder: str = "") -> Section:
    """Return the first section, which summarizes the report.

    Args:
        summary: summary of the results.
        folder: folder of the figure, see :class:`ReportFigure`.
    """
    blocks: list[Block] = []
    if (table := overview_table(summary)) is not None:
        blocks.append(ComparisonTables((table,), summary.origins))
    blocks.append(_verdict(summary))
    if summary.controls:
        blocks.append(Bullets(tuple(control_sentences(summary))))
    blocks += interval_figures(summary, folder)[:1]  # of MAP@R
    if table is not None:
        blocks.append(legend(summary))
    if sentence := resolution(summary):
        blocks.append(Footnote(sentence))
    return Section("overview", "Overview", (*blocks, Facts(tuple(overview_facts(summary)))))


def resolution(summary: Summary) -> str:
    """Return a sentence on the smallest difference that such an experiment finds, or ``""``."""
    if not summary.evidence.of_losses:
        return ""
    category = summary.categories[0]
    pairs = summary.comparisons(category)
    differences = [pair.difference for pair in pairs]
    if not differences or any(d.p_value is None for d in differences):
        return ""
    # A typical pair has the mean of their squared errors and of their degrees of freedom.
    error = math.sqrt(fmean((d.error or 0.0) ** 2 for d in differences))
    degrees = fmean(d.degrees or 0.0 for d in differences)
    least = smallest_detectable(error, degrees, pairs=pairs[0].pairs)
    scatter = mean_scatter(summary)
    why = f", since searches and trainings scatter {scatter_text(scatter)}" if scatter else ""
    return (
        f"Between two methods of this experiment ({category}), a true difference of "
        f"{points(least)} points would be found in 4 of 5 such experiments{why}; smaller ones are "
        "mostly not distinguishable, which does not make them zero."
    )


def _verdict(summary: Summary) -> Verdict:
    """Return the verdict: a sentence, or a line for each leader if categories disagree."""
    categories_of = leaders(summary)
    if len(categories_of) < 2:
        return Verdict((headline(summary),))
    lines = tuple(
        (Strong(f"{listed(categories)}:"), f" {leader}")
        for leader, categories in categories_of.items()
    )
    return Verdict((Bullets(lines), *cautions(summary)))


def overview_facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what was compared and how, as (name, text) pairs for the top of the page."""
    results = summary.results
    facts = dict(results.facts)
    # Numbers of complete ones, by method
    trials = [summary.progress(m, Stage.SEARCH).done for m in results.methods if m.searched]
    runs = [
        summary.progress(m, Stage.REPRODUCTIONS).done or summary.progress(m, Stage.FINAL).done
        for m in results.methods
    ]
    lines = {
        "Data set": facts.get("Data set"),
        "Classes": facts.get("Classes"),
        "Protocol": results.protocol
        and f"{results.protocol}, measured against {results.reference}",
        "Methods": str(len(summary.methods)),
        "Output folders": str(len(results.folders)) if len(results.folders) > 1 else "",
        "Search": f"{_span(trials)} trials per method" if any(trials) else "",
        summary.scored_title: f"{_span(runs)} per method" if any(runs) else "",
        "Cost": hours_text(results.costs),
        "State": "finished" if results.finished else "not finished",
    }
    return [(name, text) for name, text in lines.items() if text]


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
