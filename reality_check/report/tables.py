"""The comparison table as plain data, and the CSV files."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reality_check.config.metrics import METRICS, PRIMARY, metric_of, stage_of
from reality_check.report.columns import column_cells, column_titles, untrained_cells
from reality_check.report.summary import Evidence, Summary, rank_key
from reality_check.report.wording import NOTHING, interval_text, size_text
from reality_check.results import ExperimentResults, Record
from reality_check.statistics import Estimate, t_interval

#: Header of ``results.csv`` and ``baselines.csv``.
COLUMNS = tuple(Record.__annotations__)

#: First columns of ``trials.csv``; the names of hyper-parameters follow.
_TRIAL_COLUMNS = (
    "method", "stage", "search", "number", "state", "value", "diverged", "seconds", "attempts",
)  # fmt: skip

#: Mark of a mean that is not distinguishable from the best of its column.
CLOSE_MARK = "†"


def close_text(summary: Summary) -> str:
    """Return the meaning of :data:`CLOSE_MARK`."""
    subject = "what its search found is " if summary.evidence is Evidence.SETTINGS else ""
    return f"{subject}not distinguishable from the best of its column (Holm-corrected, 95 %)"


@dataclass(frozen=True)
class Cell:
    """The result of a method on a metric in a category.

    Attributes:
        interval: the estimate; ``None`` without results.
        best: whether the mean is the best of its column, which must have at least two.
        close: whether the mean is not the best, but not distinguishable from the best.
        fraction: whether the numbers are fractions, which are printed in percent.
    """

    interval: Estimate | None
    best: bool = False
    close: bool = False
    fraction: bool = True

    @property
    def rank(self) -> float:
        """Sort key of rows: the highest mean comes first, cells without a finite mean last."""
        return rank_key(self.interval)

    @property
    def text(self) -> str:
        """``"25.25 ± 0.13"``, the mean alone, or a dash without results."""
        return NOTHING if self.interval is None else interval_text(self.interval, self.fraction)


@dataclass(frozen=True)
class TableRow:
    """A row of a comparison table.

    Attributes:
        method: name of the method or baseline.
        cells: one cell for each metric.
        n: number of values, e.g. ``"10"`` or ``"3 of 10"``.
        trained: whether the row is of a method rather than a baseline.
        columns: the cells of :attr:`ComparisonTable.columns`.
    """

    method: str
    cells: tuple[Cell, ...]
    n: str
    trained: bool = True
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparisonTable:
    """Results of methods by metric in one category.

    ``metrics`` and ``columns`` are titles: of the metrics, and of the columns of
    :mod:`reality_check.report.columns`.
    """

    category: str
    metrics: tuple[str, ...]
    rows: tuple[TableRow, ...]
    columns: tuple[str, ...] = ()


def comparison_table(
    summary: Summary, category: str, metrics: Mapping[str, str] = METRICS
) -> ComparisonTable:
    """Return the table of one category.

    Args:
        summary: the results.
        category: for example ``"ensemble"``.
        metrics: column titles by the names of metrics.
    """
    columns = [cells_by_method(summary, category, metric) for metric in metrics]
    rows = [_row(summary, category, method, columns) for method in summary.methods]
    if category == summary.categories[0]:
        rows += not_trained(summary, metrics)
    return ComparisonTable(category, tuple(metrics.values()), tuple(rows), column_titles(summary))


def overview_table(summary: Summary) -> ComparisonTable | None:
    """Return the table of MAP@R by category: methods, the best first, and then baselines.

    The result is ``None`` without results.
    """
    categories = [name for name in summary.categories if summary.samples(name, PRIMARY)]
    if not categories:
        return None
    # One column of cells for each category
    first, columns = categories[0], [cells_by_method(summary, name, PRIMARY) for name in categories]
    rows = [_row(summary, first, method, columns, num_counted=1) for method in summary.ranked]
    if first == summary.categories[0]:
        missing = (Cell(None),) * (len(categories) - 1)
        others = sorted(not_trained(summary, (PRIMARY,)), key=lambda row: row.cells[0].rank)
        rows += [dataclasses.replace(row, cells=row.cells + missing) for row in others]
    title = f"{summary.results.measure} on the {summary.results.tested_on}"
    return ComparisonTable(title, tuple(categories), tuple(rows), column_titles(summary))


def _row(
    summary: Summary,
    category: str,
    method: str,
    columns: Sequence[Mapping[str, Cell]],
    num_counted: int | None = None,
) -> TableRow:
    """Return a method's row; ``n`` covers the first ``num_counted`` cells, or all."""
    cells = tuple(column.get(method, Cell(None)) for column in columns)
    n = _size(summary, method, category, cells[:num_counted])
    return TableRow(method, cells, n, columns=column_cells(summary, method, category))


def not_trained(summary: Summary, metrics: Iterable[str]) -> Iterator[TableRow]:
    """Yield a row for each baseline (untrained networks, raw input), in the first category."""
    for name, values in summary.baselines.items():
        cells = tuple(
            Cell(t_interval(values[m]), fraction=metric_of(m).percent)
            if m in values
            else Cell(None)
            for m in metrics
        )
        if any(cell.interval for cell in cells):
            count = max(map(len, values.values()))
            yield TableRow(name, cells, str(count), trained=False, columns=untrained_cells(summary))


def comparison_tables(summary: Summary) -> list[ComparisonTable]:
    """Return the tables of all categories, in their order."""
    return [comparison_table(summary, category) for category in summary.categories]


def other_tables(summary: Summary) -> list[ComparisonTable]:
    """Return the tables of metrics asked for in addition to the three; empty if there are none."""
    metrics = summary.final_metrics
    return [comparison_table(summary, name, metrics) for name in summary.categories if metrics]


def result_records(results: ExperimentResults) -> list[dict[str, Any]]:
    """Return each score, with the user's columns of its method, as a dict."""
    by_method = {m.name: {value.name: value.value for value in m.columns} for m in results.methods}
    names = dict.fromkeys(name for values in by_method.values() for name in values)
    return [
        {**row.record(), **{name: by_method.get(row.method, {}).get(name) for name in names}}
        for row in results.rows
    ]


def results_csv(results: ExperimentResults) -> str:
    """Return ``results.csv``: each score, followed by the user's columns of its method."""
    records = result_records(results)
    return csv_of(records[0] if records else COLUMNS, (record.values() for record in records))


def trials_csv(results: ExperimentResults) -> str:
    """Return all trials, reproductions and final runs as CSV, with all digits of values."""
    trials = results.trials()
    return csv_of(trials[0] if trials else _TRIAL_COLUMNS, (trial.values() for trial in trials))


def csv_of(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return the text of a CSV file; floats keep all digits, and ``None`` gives an empty cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([repr(float(c)) if isinstance(c, float) else c for c in row] for row in rows)
    return stream.getvalue()


def cells_by_method(summary: Summary, category: str, metric: str) -> dict[str, Cell]:
    """Return the cells of one metric by method, with the best and close ones marked.

    Pairs are ordered by the mean, so the leader is in the first pair, or in the last one if lower
    is better. It need not be the best method of the column, which may be a control.
    """
    intervals, description = summary.estimates(category, metric), summary.results.metric(metric)
    finite = [interval.mean for interval in intervals.values() if math.isfinite(interval.mean)]
    top, close = math.inf, set[str]()
    if summary.results.finished and description.higher_is_better is not None and len(finite) > 1:
        top = max(finite) if description.sign > 0 else min(finite)
        pairs = summary.comparisons(category, metric)
        for pair in pairs:  # none if all methods but one are controls
            leader = pairs[0].better if description.sign > 0 else pairs[-1].other
            if leader in (pair.better, pair.other) and not pair.distinct:
                close |= {pair.better, pair.other} - {leader}
    return {
        method: Cell(
            interval,
            interval.mean == top,
            method in close and interval.mean != top,
            description.percent,
        )
        for method, interval in intervals.items()
    }


def _size(summary: Summary, method: str, category: str, cells: tuple[Cell, ...]) -> str:
    """Return the number of values of a row, and the planned number if some are missing."""
    sizes = sorted({cell.interval.effective_n for cell in cells if cell.interval is not None})
    # The smallest and the largest, if metrics differ in it
    text = " to ".join(dict.fromkeys(map(size_text, sizes[:1] + sizes[-1:]))) or "0"
    record = summary.records.get(method)
    planned = summary.planned_repeats(record, stage_of(category)) if record else None
    incomplete = planned is not None and (not sizes or sizes[0] < planned)
    return f"{text} of {planned}" if incomplete else (text if sizes else NOTHING)
