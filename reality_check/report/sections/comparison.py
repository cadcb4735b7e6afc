"""The comparison: a table a category of the three metrics, and of what else was measured."""

from __future__ import annotations

from reality_check.config.metrics import METRICS, PRIMARY, is_fraction
from reality_check.report.sections.blocks import (
    Block,
    ComparisonTables,
    Filter,
    Folded,
    Heading,
    Note,
    Section,
    Strong,
)
from reality_check.report.sections.intervals import interval_figures
from reality_check.report.summary import Summary
from reality_check.report.tables import (
    CLOSE_MARK,
    close_note,
    comparison_table,
    comparison_tables,
    other_tables,
)
from reality_check.report.text import listed


def comparison_section(summary: Summary) -> Section:
    """Return the section."""
    if not summary.results.rows:
        return Section("comparison", "All metrics", ("No results yet.",))
    tables, others = tuple(comparison_tables(summary)), tuple(other_tables(summary))
    blocks: list[Block] = [
        Filter((*tables, *others)),
        ComparisonTables(tables, summary.origins),
    ]
    if figures := interval_figures(summary)[1:]:
        labels = [label for metric, label in METRICS.items() if metric != PRIMARY]
        blocks.append(Folded(f"Intervals of {listed(labels)}", tuple(figures)))
    if others:
        blocks += [Heading("Other metrics"), other_note(summary)]
        blocks.append(ComparisonTables(others, summary.origins))
    if names := summary.other_geometries:
        title = "The same runs, measured on the geometry that a method does not use"
        geometries = (comparison_table(summary, c, names) for c in summary.categories)
        blocks.append(Folded(title, (ComparisonTables(tuple(geometries), summary.origins),)))
    return Section("comparison", "All metrics", tuple(blocks))


def legend(summary: Summary) -> Note:
    """What the numbers and marks of the tables mean."""
    return Note(
        (
            f"Percent, mean ± half-width of the 95 % interval over n {summary.basis.units}. ",
            Strong("Bold"),
            f": best mean of its column. {CLOSE_MARK}: {close_note(summary)}. Rows in italics are "
            "not trained; their n counts networks, and raw input is one.",
        )
    )


def other_note(summary: Summary) -> str:
    """What the table of other metrics holds."""
    plain = "" if all(map(is_fraction, summary.final_metrics)) else " (ratios, traces as they are)"
    return (
        f"Asked for in addition to the protocol's three metrics, in percent{plain}; nothing was "
        "selected by them."
    )
