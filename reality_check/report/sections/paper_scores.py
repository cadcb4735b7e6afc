"""The section "Published": printed results of papers, compared with the measured ones.

It has the table of the paper that the experiment repeats and, if the report was asked to compare
with them, the tables of :mod:`reality_check.papers.published_comparison`.
"""

from __future__ import annotations

from reality_check.config.metrics import metric_of
from reality_check.config.published_scores import PublishedResults
from reality_check.report.sections.blocks import Block, Bullets, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.wording import NOTHING, interval_text, points, true_minus
from reality_check.statistics import Estimate

#: Kinds of rows of a method.
_ROWS = ("published", "measured", "difference")


def published_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` if there are no published results."""
    plain = summary.results.config.get("published_results")
    repeated = [PublishedResults.model_validate(plain)] if plain else []
    blocks: list[Block] = []
    for published in (*repeated, *summary.results.published):
        spread = f" Published ±: {published.spread}." if published.spread else ""
        blocks.append(
            f"{published.source}. In percent; measured: mean ± half-width of the 95 % t-interval "
            f"over n networks; differences in points.{spread}"
        )
        if published.results:
            blocks.append(_table(summary, published))
        if published.notes:
            blocks.append(Bullets(tuple(published.notes)))
    return Section("published", "Published", tuple(blocks)) if blocks else None


def _table(summary: Summary, published: PublishedResults) -> PlainTable:
    """Return the table with up to three rows (:data:`_ROWS`) for each method and category."""
    figures_of_methods = [
        figures for methods in published.results.values() for figures in methods.values()
    ]
    metrics = list(dict.fromkeys(metric for figures in figures_of_methods for metric in figures))
    # YAML drops trailing zeros, so all values get the decimals of the value that has most.
    digits = _most_digits(figures_of_methods, 0), _most_digits(figures_of_methods, 1)
    rows = []
    for category, methods in published.results.items():
        others = [name for name in summary.methods if name not in methods]
        for method in (*methods, *others):
            rows += _rows(summary, category, method, methods.get(method, {}), metrics, digits)
    titles = [metric_of(metric).title for metric in metrics]
    header = ("Method", "Category", "Figures", *titles, "n")
    words = ("Method", "Category", "Figures")
    return PlainTable(f"Published and measured: {published.item}.", header, tuple(rows), words)


def _rows(
    summary: Summary,
    category: str,
    method: str,
    figures: dict[str, tuple[float, ...]],
    metrics: list[str],
    digits: tuple[int, int],
) -> list[tuple[str, ...]]:
    """Return the rows of a method in a category; rows without values are left out.

    Args:
        summary: summary of the results.
        category: the category.
        method: name of the method.
        figures: published values of the method by metric, each with its spread if printed.
        metrics: metrics of the columns.
        digits: number of decimals of values and of spreads.
    """
    values = {metric: _measured(summary, category, method, metric) for metric in metrics}
    runs = max((measured.n for measured in values.values() if measured is not None), default=0)
    names = (method, category)
    rows: list[tuple[str, ...]] = []
    if figures:
        printed = [_printed(figures.get(metric), digits) for metric in metrics]
        rows.append((*names, _ROWS[0], *printed, NOTHING))
    if runs or (figures and method in summary.methods):
        measured = [
            interval_text(value, metric_of(metric).percent) if value is not None else NOTHING
            for metric, value in values.items()
        ]
        rows.append((*names, _ROWS[1], *measured, str(runs)))
    if figures and runs:
        differences = [
            _difference(metric, figures.get(metric), values[metric]) for metric in metrics
        ]
        rows.append((*names, _ROWS[2], *differences, NOTHING))
    return rows


def _measured(summary: Summary, category: str, method: str, metric: str) -> Estimate | None:
    """Return the estimate of a metric; Recall@1 equals P@1, which is always measured."""
    names = [metric, "precision_at_1"] if metric == "recall_at_1" else [metric]
    estimates = (summary.estimates(category, name).get(method) for name in names)
    return next((estimate for estimate in estimates if estimate is not None), None)


def _most_digits(figures_of_methods: list[dict[str, tuple[float, ...]]], position: int) -> int:
    """Return the largest number of decimals of values (position 0) or spreads (1)."""
    decimals = (
        len(str(figure[position]).partition(".")[2])
        for figures in figures_of_methods
        for figure in figures.values()
        if position < len(figure)
    )
    return max(decimals, default=0)


def _printed(figure: tuple[float, ...] | None, digits: tuple[int, int]) -> str:
    """Return a published value, with its spread if that is known, as printed."""
    if figure is None:
        return NOTHING
    return " ± ".join(f"{value:.{n}f}" for value, n in zip(figure, digits, strict=False))


def _difference(metric: str, figure: tuple[float, ...] | None, measured: Estimate | None) -> str:
    if figure is None or measured is None:
        return NOTHING
    if not metric_of(metric).percent:
        return true_minus(measured.mean - figure[0], 3, plus=True)
    return points(measured.mean - figure[0] / 100, plus=True)
