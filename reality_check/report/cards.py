"""Cards in Markdown: of a data set of results, and of a loss in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.render.markdown import report_md
from reality_check.report.sections.blocks import (
    Bullets,
    ComparisonTables,
    PlainTable,
    Section,
    Verdict,
)
from reality_check.report.sections.comparison import legend
from reality_check.report.sections.deviation_list import deviations_section
from reality_check.report.sections.overview import overview_facts, overview_section
from reality_check.report.sections.verdict import (
    NOISE_TEXTS,
    cautions,
    pair_sentence,
)
from reality_check.report.summary import Summary
from reality_check.report.tables import comparison_tables, other_tables


def first_screen(summary: Summary, further: Section) -> str:
    """Return the first section of the report without its figure, and a further one, as Markdown."""
    overview = overview_section(summary)
    blocks = [block for block in overview.blocks if not isinstance(block, ReportFigure)]
    shown = dataclasses.replace(overview, blocks=(*blocks, _facts(overview_facts(summary))))
    return report_md(summary.results.name, [shown, deviations_section(summary), further])


def loss_card(
    summary: Summary, method: str, protocol_hash: str, claims: Sequence[str], further: Section
) -> str:
    """Return what a method scores, under which protocol and by which verdict, as Markdown.

    Args:
        summary: the results of a finished run.
        method: the name of the method.
        protocol_hash: that of the experiment.
        claims: the verdicts on the claims about the method, as sentences.
        further: the last section.
    """
    tables = tuple(
        dataclasses.replace(
            table, rows=tuple(row for row in table.rows if row.method == method or not row.trained)
        )
        for table in (*comparison_tables(summary), *other_tables(summary))
    )
    sentences = [
        f"{category}: {pair_sentence(pair, summary)}"
        for category in summary.categories
        for pair in summary.comparisons(category)
        if method in (pair.better, pair.other)
    ]
    verdict = Verdict(tuple(cautions(summary))), Bullets((*sentences, *claims))
    title = f"The loss {summary.records[method].loss} in {summary.results.name}."
    sections = [
        Section("scores", "", (title, ComparisonTables(tables), legend(summary))),
        Section(
            "verdict",
            "Verdict",
            (*verdict, NOISE_TEXTS[summary.evidence]),
        ),
        Section(
            "protocol",
            "Protocol",
            (_facts([*summary.results.facts, ("Protocol hash", protocol_hash)]),),
        ),
        deviations_section(summary),
        further,
    ]
    return report_md(method, sections)


def _facts(pairs: Sequence[tuple[str, str]]) -> PlainTable:
    header = "What", "How"
    return PlainTable("How it was run:", header, tuple(pairs), words=header)
