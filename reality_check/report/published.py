"""The section "Published": what the paper printed for a table, beside what was measured here."""

from __future__ import annotations

from reality_check.config.published import PublishedResults
from reality_check.final_metrics import is_fraction, title
from reality_check.report._sections import PlainTable
from reality_check.report._summary import Summary
from reality_check.report._text import NOTHING, interval_text, number, points
from reality_check.report.statistics import t_interval
from reality_check.results import METRICS

#: Names of the rows of a method.
_ROWS = ("published", "measured", "difference")


def published_results(summary: Summary) -> PublishedResults | None:
    """What the experiment says was published; ``None`` where it repeats no table."""
    plain = summary.results.config.get("published_results")
    return None if not plain else PublishedResults.model_validate(plain)


def published_lines(summary: Summary) -> list[str]:
    """Where the figures are from, what their spread is, and the errata; nothing without figures."""
    published = published_results(summary)
    if published is None:
        return []
    spread = f" Published ±: {published.spread}." if published.spread else ""
    first = (
        f"{published.source}. In percent; measured: mean ± half-width of the 95 % t-interval over "
        f"n networks; differences in points.{spread}"
    )
    return [first, *published.notes]


def published_table(summary: Summary) -> PlainTable | None:
    """Three rows a method and category: published, measured, and the difference."""
    published = published_results(summary)
    if published is None or not published.results:
        return None
    metrics = list(
        dict.fromkeys(
            metric
            for methods in published.results.values()
            for figures in methods.values()
            for metric in figures
        )
    )
    rows = [
        row
        for category, methods in published.results.items()
        for method, figures in methods.items()
        for row in _rows(summary, category, method, figures, metrics)
    ]
    header = ("Method", "Category", "Figures", *map(_title, metrics), "n")
    words = ("Method", "Category", "Figures")
    return PlainTable(f"Published and measured: {published.item}.", header, tuple(rows), words)


def _title(metric: str) -> str:
    return METRICS[metric] if metric in METRICS else title(metric)


def _rows(
    summary: Summary,
    category: str,
    method: str,
    figures: dict[str, tuple[float, ...]],
    metrics: list[str],
) -> list[tuple[str, ...]]:
    values = {metric: _measured(summary, category, method, metric) for metric in metrics}
    runs = max(map(len, values.values()), default=0)
    printed = [_printed(figures.get(metric)) for metric in metrics]
    found = [_found(metric, values[metric]) for metric in metrics]
    apart = [_difference(metric, figures.get(metric), values[metric]) for metric in metrics]
    names = (method, category)
    rows = [(*names, _ROWS[0], *printed, NOTHING), (*names, _ROWS[1], *found, str(runs))]
    return [*rows, (*names, _ROWS[2], *apart, NOTHING)] if runs else rows


def _measured(summary: Summary, category: str, method: str, metric: str) -> tuple[float, ...]:
    """The value of each network. Recall@1 is P@1, which is always measured."""
    names = [metric, "precision_at_1"] if metric == "recall_at_1" else [metric]
    for name in names:
        found = summary.values.get((category, name, method))
        if found:
            return tuple(found.values())
    return ()


def _printed(figure: tuple[float, ...] | None) -> str:
    return NOTHING if figure is None else " ± ".join(map(str, figure))


def _found(metric: str, values: tuple[float, ...]) -> str:
    return interval_text(t_interval(values), is_fraction(metric)) if values else NOTHING


def _difference(metric: str, figure: tuple[float, ...] | None, values: tuple[float, ...]) -> str:
    if figure is None or not values:
        return NOTHING
    mean = sum(values) / len(values)
    if not is_fraction(metric):
        return _signed(number(mean - figure[0]))
    return _signed(points(mean - figure[0] / 100))


def _signed(text: str) -> str:
    """With a sign, also where it is a plus."""
    return text if text.startswith(("−", "-")) else f"+{text}"
