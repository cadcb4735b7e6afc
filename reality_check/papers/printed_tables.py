"""Printed tables of results, from the package or from the user's CSV."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from reality_check.config.compose import load_experiment
from reality_check.config.messages import validate
from reality_check.config.metrics import metric_of
from reality_check.config.published_scores import PublishedResults
from reality_check.config.values import Strict
from reality_check.config.yaml_text import read_yaml
from reality_check.statistics import t_quantile
from reality_check.utils.config_files import paper_files, shipped_files
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Numbers of reproductions and of trials in the tables of the Reality Check.
_REPRODUCTIONS, _TRIALS = 10, 50
_RUNS = re.compile(r"over (\d+) runs")


@dataclass(frozen=True)
class ShippedTable:
    """A table of test results from ``configs/published/`` or ``configs/papers/``.

    Attributes:
        reader: reader of the data set, e.g. ``cub200``.
        protocol: name of the shipped protocol that produced the numbers.
        printed: the numbers of the table.
    """

    reader: str
    protocol: str
    printed: PublishedResults


def shipped_table(name: str) -> ShippedTable:
    """Return the table of a name, e.g. ``published/mlrc_cub200``."""
    if name in paper_files():
        experiment = load_experiment(name)
        assert experiment.published_results is not None, name
        reference = experiment.protocol.reference
        return ShippedTable(experiment.dataset.reader, reference, experiment.published_results)
    plain = read_yaml(shipped_files("published")[name.removeprefix("published/")])
    if "table_of" in plain:
        return shipped_table(plain["table_of"])
    printed = PublishedResults.model_validate(plain["table"])
    return ShippedTable(plain["dataset"], plain["protocol"], printed)


def published_tables() -> Iterator[ShippedTable]:
    """Return an iterator over the tables of ``configs/published/``."""
    return map(shipped_table, shipped_files("published"))


class TableRow(Strict):
    """A printed mean, as one row of a CSV whose columns are these fields."""

    method: str
    """Name of the method in the table."""
    metric: str
    """Name of the metric in the table."""
    mean: float = Field(ge=0, le=100)
    """Mean in points."""
    n: int = Field(1, ge=1)
    """Number of retrainings that were averaged."""
    sd: float | None = Field(None, gt=0, le=100)
    """Standard deviation of one retraining, in points; ``None`` if it was not printed."""
    searches: int = Field(1, ge=1)
    """Number of searches that the retrainings come from."""
    trials: int = Field(10, ge=1)
    """Number of trials of each search."""
    networks: int = Field(1, ge=1)
    """Number of networks averaged in one retraining, e.g. the folds of a cross-validation."""
    selected_on: Literal["validation", "test"] = "validation"
    """Classes on which epochs or values were selected."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.sd is not None and self.n < 2:
            raise ValueError(
                f"sd={self.sd:g} with n={self.n}, but an sd is of at least 2 values; leave it "
                "empty if it was not printed"
            )
        if self.n < self.searches:
            raise ValueError(
                f"n={self.n} retrainings of searches={self.searches}, but each search has at "
                "least one; n counts all of them"
            )
        return self


#: All columns of a CSV, the required ones first.
COLUMNS = tuple(TableRow.model_fields)
_REQUIRED = tuple(name for name, field in TableRow.model_fields.items() if field.is_required())


@dataclass(frozen=True)
class PrintedTable:
    """The rows of a table.

    Attributes:
        source: paper and item, or path of the file.
        reader: reader of the data set, e.g. ``cub200``; empty if unknown.
        rows: the rows as printed.
    """

    source: str
    reader: str
    rows: tuple[TableRow, ...]

    def of(self, metric: str | None, selected_on: str | None) -> PrintedTable:
        """Return the rows of one metric.

        Args:
            metric: name of the metric; ``None`` selects R@1, else MAP@R, else the first one.
            selected_on: overrides the ``selected_on`` of the rows; ``None`` keeps it.

        Raises:
            UsageError: no row has the metric.
        """
        metrics = list(dict.fromkeys(row.metric for row in self.rows))
        if metric is None:
            metric = next((name for name in ("R@1", "MAP@R") if name in metrics), metrics[0])
        if metric not in metrics:
            raise UsageError(
                f"{self.source} has no metric {metric!r}; it has {', '.join(metrics)}."
                f"{nearest(metric, metrics)}"
            )
        rows = [
            row.model_copy(update={"selected_on": selected_on or row.selected_on})
            for row in self.rows
            if row.metric == metric
        ]
        return replace(self, rows=tuple(rows))


def load_table(name: str) -> PrintedTable:
    """Return a table by the path of its CSV, or by the name of a shipped table.

    Raises:
        UsageError: the table does not exist or cannot be read.
    """
    if Path(name).suffix == ".csv" or Path(name).is_file():
        return read_csv(Path(name))
    known = [*(f"published/{file}" for file in shipped_files("published")), *sorted(paper_files())]
    if name not in known:
        raise UsageError(
            f"there is no table {name!r}; give a .csv with the columns {', '.join(COLUMNS)}, or a "
            f"published table such as {known[0]}.{nearest(name, known)}"
        )
    table = shipped_table(name)
    if not table.printed.results:
        raise UsageError(f"{name} has no printed figures; name another table.")
    return _printed_rows(table)


def _printed_rows(table: ShippedTable) -> PrintedTable:
    """Return the rows of the last category; in ``complete``, test classes select the epochs."""
    category, methods = list(table.printed.results.items())[-1]
    # Columns that are the same in all rows; aggregate and ensemble average four folds.
    design: dict[str, Any] = {"n": _REPRODUCTIONS, "trials": _TRIALS, "networks": 4}
    if category == "complete":
        design = {"selected_on": "test", "networks": 1}
    rows = []
    for method, figures in methods.items():
        if "pretrained trunk" in method:
            continue
        for metric, (mean, *spread) in figures.items():
            row = dict(design, method=method, metric=metric_of(metric).title, mean=mean)
            if spread:
                row["n"], row["sd"] = _retrainings(table.printed, spread[0])
                row["selected_on"] = "validation"
            rows.append(TableRow(**row))
    return PrintedTable(table.printed.source, table.reader, tuple(rows))


def _retrainings(printed: PublishedResults, spread: float) -> tuple[int, float]:
    """Return the number of runs behind a printed spread, and its standard deviation."""
    match = _RUNS.search(printed.spread)
    n = int(match[1]) if match else _REPRODUCTIONS
    if printed.spread.startswith("standard deviation"):
        return n, spread
    return n, spread * math.sqrt(n) / t_quantile(n - 1)  # from the half-width of an interval


def published_sds(metric: str) -> dict[str, list[float]]:
    """Return the sds of retrainings in the tables of the Reality Check, by reader of the data set.

    The values are in points, from the category "aggregate", in which four networks are averaged.
    """
    sds: dict[str, list[float]] = {}
    for table in published_tables():
        if table.protocol.startswith("mlrc"):
            rows = _printed_rows(table).rows  # aggregate is the last category
            if printed := [row.sd for row in rows if row.metric == metric and row.sd is not None]:
                sds[table.reader] = printed
    return sds


def read_csv(path: Path) -> PrintedTable:
    """Return the rows of a CSV with a header of :data:`COLUMNS`; empty cells take the defaults.

    Raises:
        UsageError: the file cannot be read, or a cell is wrong; the message says which.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            lines = [(f"{path}, line {reader.line_num}", cells) for cells in reader]
            header = list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{path} cannot be read as a CSV: {error}; name another one, or a table that ships "
            "with the package (reality-check show papers)."
        ) from error
    if not set(_REQUIRED) <= set(header) <= set(COLUMNS) or len(header) > len(set(header)):
        raise UsageError(
            f"{path}: the columns are {', '.join(header) or 'none'}, but a table needs "
            f"{', '.join(_REQUIRED)} and may have {', '.join(COLUMNS[len(_REQUIRED) :])}, each "
            "once, separated by commas, with points in numbers."
        )
    if not lines:
        raise UsageError(f"{path} has a header, but no rows; write one for each method.")
    rows = tuple(_row(cells, place) for place, cells in lines)
    for (method, metric), count in Counter((row.method, row.metric) for row in rows).items():
        if count > 1:
            raise UsageError(f"{path} has two rows of {method} and {metric}; leave one.")
    for metric in dict.fromkeys(row.metric for row in rows):
        highest = max(row.mean for row in rows if row.metric == metric)
        if highest <= 1:
            raise UsageError(
                f"{path}: all means of {metric} are at most {highest:g}, as fractions are, but a "
                "table is in points; write 71.2 for 0.712."
            )
    return PrintedTable(str(path), "", rows)


def _row(cells: dict[str, Any], place: str) -> TableRow:
    """Return a row of a CSV; ``place`` names the row in messages."""
    if None in cells:
        raise UsageError(
            f"{place} has more cells than the header; numbers have points, not commas, and a name "
            "with a comma stands in quotes."
        )
    cell_texts = {name: text.strip() for name, text in cells.items() if text and text.strip()}
    row: TableRow = validate(TableRow, cell_texts, place)
    return row
