"""The section "Published": printed results of papers, compared with the measured ones.

It has the table of the paper that the experiment repeats and, if the report was asked to compare
with them, the tables of :mod:`reality_check.papers.published_comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator

from reality_check.config.metrics import metric_of
from reality_check.config.published_scores import PublishedResults
from reality_check.report.sections.blocks import Block, Bullets, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.wording import NOTHING, interval_text, points, true_minus
from reality_check.statistics import Estimate


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
    """Return the table with up to three rows for each method and category.

    These are the published values, the measured ones and their differences.
    """
    scores = [
        (metric, score)
        for methods in published.results.values()
        for by_metric in methods.values()
        for metric, score in by_metric.items()
    ]
    metrics = list(dict.fromkeys(metric for metric, _ in scores))
    # A score is a value and perhaps its spread. YAML drops trailing zeros, so all values get the
    # decimals of the value that has most, and all spreads those of the spread that has most.
    digits = [
        max((len(str(s[part]).partition(".")[2]) for _, s in scores if part < len(s)), default=0)
        for part in (0, 1)
    ]
    rows: list[tuple[str, ...]] = []
    for category, methods in published.results.items():
        others = [name for name in summary.methods if name not in methods]
        for method in (*methods, *others):
            rows += _rows(summary, category, method, methods.get(method, {}), metrics, digits)
    titles = [metric_of(metric).title for metric in metrics]
    words = ("Method", "Category", "Figures")
    caption = f"Published and measured: {published.item}."
    return PlainTable(caption, (*words, *titles, "n"), tuple(rows), words)


def _rows(
    summary: Summary,
    category: str,
    method: str,
    published: dict[str, tuple[float, ...]],
    metrics: list[str],
    digits: list[int],
) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a method in a category; rows without values are left out.

    Args:
        summary: summary of the results.
        category: the category.
        method: name of the method.
        published: published values of the method by metric, each with its spread if printed.
        metrics: metrics of the columns.
        digits: number of decimals of values and of spreads.
    """
    values = {metric: _measured(summary, category, method, metric) for metric in metrics}
    runs = max((measured.n for measured in values.values() if measured is not None), default=0)
    if published:
        printed = [_printed(published.get(metric), digits) for metric in metrics]
        yield (method, category, "published", *printed, NOTHING)
    # A row without values says that a published method of the experiment has no results yet.
    if runs or (published and method in summary.methods):
        texts = [
            interval_text(value, metric_of(metric).percent) if value is not None else NOTHING
            for metric, value in values.items()
        ]
        yield (method, category, "measured", *texts, str(runs))
    if published and runs:
        differences = [
            _difference(metric, published.get(metric), values[metric]) for metric in metrics
        ]
        yield (method, category, "difference", *differences, NOTHING)


def _measured(summary: Summary, category: str, method: str, metric: str) -> Estimate | None:
    """Return the estimate of a metric; Recall@1 equals P@1, which is always measured."""
    estimate = summary.estimates(category, metric).get(method)
    if estimate is None and metric == "recall_at_1":
        return summary.estimates(category, "precision_at_1").get(method)
    return estimate


def _printed(score: tuple[float, ...] | None, digits: list[int]) -> str:
    """Return a published value, with its spread if that is known, as printed."""
    if score is None:
        return NOTHING
    return " ± ".join(f"{number:.{n}f}" for number, n in zip(score, digits, strict=False))


def _difference(metric: str, score: tuple[float, ...] | None, measured: Estimate | None) -> str:
    """Return measured minus published; published fractions are in percent."""
    if score is None or measured is None:
        return NOTHING
    if not metric_of(metric).percent:
        return true_minus(measured.mean - score[0], 3, plus=True)
    return points(measured.mean - score[0] / 100, plus=True)
