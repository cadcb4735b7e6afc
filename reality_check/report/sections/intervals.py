"""Means with their intervals, drawn."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import METRICS
from reality_check.report.figures.comparison import intervals_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.summary import Basis, Summary
from reality_check.report.text import interval_text

#: What a dot of a figure is.
_DOTS = {
    Basis.SEARCHES: "the mean of every search",
    Basis.SUBSETS: "every retrained trial",
    Basis.SETTINGS: "every reproduction",
    Basis.VALUES: "every reproduction",
}


def interval_figures(summary: Summary, folder: str = "") -> list[ReportFigure]:
    """Return a figure for each metric that has results, MAP@R first.

    Args:
        summary: the results.
        folder: see :class:`ReportFigure`.
    """
    return [
        ReportFigure(
            f"intervals_{metric}",
            f"{label}: {_DOTS[summary.basis]} (dots), mean and 95 % interval (line). Each category "
            "has its own scale.",
            _alt(summary, metric),
            partial(intervals_figure, summary, metric),
            folder,
        )
        for metric, label in METRICS.items()
        if any(summary.samples(category, metric) for category in summary.categories)
    ]


def _alt(summary: Summary, metric: str) -> str:
    """The figure's content in words: the means of each category in percent."""
    parts = []
    for category in summary.categories:
        means = [
            f"{method} {interval_text(estimate)} (n = {estimate.n})"
            for method, estimate in summary.estimates(category, metric).items()
        ]
        parts.append(f"{category}: {'; '.join(means) or 'no results yet'}.")
    return f"{METRICS.get(metric, metric)} in percent. " + " ".join(parts)
