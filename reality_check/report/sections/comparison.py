"""The comparison: a table of all metrics per category, and means with their intervals."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import PRIMARY, metric_of
from reality_check.report.figures.comparison import intervals_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import (
    Block,
    ComparisonTables,
    Filter,
    Folded,
    Footnote,
    Heading,
    Section,
    Strong,
)
from reality_check.report.summary import Evidence, Summary
from reality_check.report.tables import (
    CLOSE_MARK,
    close_text,
    comparison_tables,
    other_tables,
)
from reality_check.report.wording import interval_text, listed, size_text

#: What the dots of a figure show.
_DOTS = {
    Evidence.SEARCHES: "the mean of every search",
    Evidence.SUBSETS: "every trial with a test score",
    Evidence.SETTINGS: "every reproduction",
    Evidence.VALUES: "every reproduction",
}
#: What the legend says about the rows of baselines.
_UNTRAINED_ROWS = " Rows in italics are not trained; their n counts networks, and raw input is one."


def comparison_section(summary: Summary) -> Section:
    """Return the section with all metrics in all categories."""
    if not summary.results.rows:
        return Section("comparison", "All metrics", ("No results yet.",))
    tables, others = tuple(comparison_tables(summary)), tuple(other_tables(summary))
    blocks: list[Block] = [Filter((*tables, *others)), ComparisonTables(tables, summary.origins)]
    # MAP@R has its figure in the overview.
    if figures := interval_figures(summary)[1:]:
        titles = [title for metric, title in summary.titles.items() if metric != PRIMARY]
        blocks.append(Folded(f"Figures of {listed(titles)}", tuple(figures)))
    if others:
        blocks += [
            Heading("Other metrics"),
            other_metrics_text(summary),
            ComparisonTables(others, summary.origins),
        ]
    return Section("comparison", "All metrics", tuple(blocks))


def legend(summary: Summary) -> Footnote:
    """Return a footnote that explains the numbers and marks of the tables."""
    untrained = _UNTRAINED_ROWS if summary.baselines else ""
    if not summary.results.finished:
        return Footnote(
            f"Percent, mean over n {summary.evidence.repeats}; with an interval only where nothing "
            f"is trained.{untrained}"
        )
    return Footnote(
        (
            f"Percent, mean ± half-width of the 95 % interval over n {summary.evidence.repeats}. ",
            Strong("Bold"),
            f": best mean of its column. {CLOSE_MARK}: {close_text(summary)}.{untrained}",
        )
    )


def other_metrics_text(summary: Summary) -> str:
    """Return a sentence that introduces the tables of other metrics."""
    unit, selected = "percent", "nothing was selected by them"
    if not all(metric_of(name).percent for name in summary.final_metrics):
        unit += " (ratios, traces and distances as they are)"
    metric = summary.results.selected_by
    if metric.name in summary.final_metrics:
        selected = f"epochs and trials were selected by validation {metric.title}"
    return f"Asked for in addition to the protocol's three metrics, in {unit}; {selected}."


def interval_figures(summary: Summary, folder: str = "") -> list[ReportFigure]:
    """Return a figure for each metric that has results, MAP@R first.

    Args:
        summary: summary of the results.
        folder: folder of the figures, see :class:`ReportFigure`.
    """
    return [
        ReportFigure(
            f"intervals_{metric}",
            f"{title}: {_DOTS[summary.evidence]} (dots), mean"
            f"{' and 95 % interval (line)' if summary.results.finished else ''}. Each category has "
            "its own scale.",
            _alt(summary, metric, title),
            partial(intervals_figure, summary, metric),
            folder,
        )
        for metric, title in summary.titles.items()
        if any(summary.samples(category, metric) for category in summary.categories)
    ]


def _alt(summary: Summary, metric: str, title: str) -> str:
    """Return the content of a metric's figure in words: its means in percent, by category."""
    parts = []
    for category in summary.categories:
        means = [
            f"{method} {interval_text(estimate)} (n = {size_text(estimate.effective_n)})"
            for method, estimate in summary.estimates(category, metric).items()
        ]
        parts.append(f"{category}: {'; '.join(means) or 'no results yet'}.")
    return " ".join([f"{title} in percent.", *parts])
