"""A paper's table of results, from a CSV of its rows or from what ships with the package."""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reality_check.config.compose import load_experiment
from reality_check.config.metrics import title
from reality_check.config.published import PublishedResults
from reality_check.papers.published_tables import published_table, published_tables
from reality_check.statistics import t_quantile
from reality_check.utils.config_files import paper_files, shipped_files
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: The columns of a table; the first three are needed.
COLUMNS = ("method", "metric", "mean", "n", "sd", "searches", "trials", "networks", "selected_on")
#: What may have chosen the printed epochs and values.
SELECTED_ON = ("validation", "test")
#: What counts are where a table does not say.
_DEFAULTS = {"n": "1", "searches": "1", "trials": "10", "networks": "1"}
#: Reproductions and trials of the Reality Check.
_REPRODUCTIONS, _TRIALS = 10, 50
_RUNS = re.compile(r"over (\d+) runs")


@dataclass(frozen=True)
class TableRow:
    """A printed mean.

    Attributes:
        method: as the table names it.
        metric: as the table names it.
        mean: in points.
        n: how many retrainings it is the mean of.
        sd: of one of these, where it was printed.
        searches: how many searches the retrainings come from.
        trials: of each search.
        networks: of which one retraining is the mean (folds of a cross-validation).
        on_test: whether epochs or values were chosen by the test classes.
    """

    method: str
    metric: str
    mean: float
    n: int = 1
    sd: float | None = None
    searches: int = 1
    trials: int = 10
    networks: int = 1
    on_test: bool = False


@dataclass(frozen=True)
class PaperTable:
    """The rows of a table.

    Attributes:
        source: paper and item, or the file.
        dataset: reader of its data set (``cub200``); empty where it is not known.
        rows: as printed.
    """

    source: str
    dataset: str
    rows: tuple[TableRow, ...]

    def of(self, metric: str | None, on_test: bool | None) -> PaperTable:
        """The rows of one metric (by default R@1 or MAP@R), as if selected on what is given.

        Raises:
            UsageError: no row has the metric.
        """
        metrics = list(dict.fromkeys(row.metric for row in self.rows))
        usual = next((name for name in ("R@1", "MAP@R") if name in metrics), metrics[0])
        wanted = usual if metric is None else metric
        if wanted not in metrics:
            raise UsageError(
                f"{self.source} has no metric {wanted!r}; it has {', '.join(metrics)}."
                f"{nearest(wanted, metrics)}"
            )
        rows = [row for row in self.rows if row.metric == wanted]
        if on_test is not None:
            rows = [replace(row, on_test=on_test) for row in rows]
        return replace(self, rows=tuple(rows))


def load_table(name: str) -> PaperTable:
    """A table by the path of its CSV, whatever its suffix, or by the name of a shipped one.

    Raises:
        UsageError: there is no such table, or it cannot be read.
    """
    if Path(name).suffix == ".csv" or Path(name).is_file():
        return read_csv(Path(name))
    known = [*(f"published/{one}" for one in shipped_files("published")), *sorted(paper_files())]
    if name in known:
        return _shipped(name)
    raise UsageError(
        f"there is no table {name!r}; give a .csv with the columns {', '.join(COLUMNS)}, or a "
        f"published table such as {known[0]}.{nearest(name, known)}"
    )


def _shipped(name: str) -> PaperTable:
    if name.startswith("published/"):
        one = published_table(shipped_files("published")[name.removeprefix("published/")])
        return _of_results(one.table, one.reader)
    experiment = load_experiment(name)
    if experiment.published_results is None or not experiment.published_results.results:
        raise UsageError(f"{name} has no printed figures; name another table.")
    return _of_results(experiment.published_results, experiment.dataset.reader)


def _of_results(table: PublishedResults, dataset: str) -> PaperTable:
    """The rows of the last category; those of ``complete`` are single runs chosen on test data."""
    category, methods = list(table.results.items())[-1]
    single = category == "complete"
    own = TableRow("", "", 0.0, networks=1 if single else 4, on_test=single)
    if not single:
        own = replace(own, n=_REPRODUCTIONS, trials=_TRIALS)
    rows = []
    for method, figures in methods.items():
        if "pretrained trunk" in method:
            continue
        for metric, figure in figures.items():
            row = replace(own, method=method, metric=title(metric), mean=figure[0])
            if len(figure) > 1:
                n, sd = _printed(table, figure[1])
                row = replace(row, n=n, sd=sd, on_test=False)
            rows.append(row)
    return PaperTable(table.source, dataset, tuple(rows))


def _printed(table: PublishedResults, spread: float) -> tuple[int, float]:
    """Of how many runs a table's spread is, and what it is as a standard deviation."""
    found = _RUNS.search(table.spread)
    n = int(found[1]) if found else _REPRODUCTIONS
    if table.spread.startswith("standard deviation"):
        return n, spread
    return n, spread * math.sqrt(n) / t_quantile(n - 1)


def published_sds(metric: str) -> dict[str, list[float]]:
    """By reader of the data set, the sds of retrainings in the Reality Check's tables, in points.

    Of the category aggregate, whose values are means of four networks.
    """
    found: dict[str, list[float]] = {}
    for one in published_tables():
        if not one.protocol.startswith("mlrc"):
            continue
        for figures in one.table.results.get("aggregate", {}).values():
            for name, figure in figures.items():
                if title(name) == metric and len(figure) > 1:
                    found.setdefault(one.reader, []).append(_printed(one.table, figure[1])[1])
    return found


def read_csv(path: Path) -> PaperTable:
    """The rows of a CSV whose header names :data:`COLUMNS`; empty cells take the defaults.

    Raises:
        UsageError: it cannot be read, or a cell is wrong; it says which.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            lines = [(f"{path}, line {reader.line_num}", cells) for cells in reader]
            header = list(reader.fieldnames or ())
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}; name a CSV, or a table that ships with the package "
            "(reality-check show papers)."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a CSV: {error}.") from error
    _check_header(path, header)
    if not lines:
        raise UsageError(f"{path} has a header, but no rows; write one for each method.")
    rows = tuple(_row(cells, where) for where, cells in lines)
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
    return PaperTable(str(path), "", rows)


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse one that lacks a column, or has others."""
    given = f"{path}: the columns are {', '.join(header) or 'none'}"
    needed = f"a table needs {', '.join(COLUMNS[:3])} and may have {', '.join(COLUMNS[3:])}"
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise UsageError(f"{given}; separate them by commas, with points in numbers.")
    if wrong := [column for column in header if column not in COLUMNS]:
        raise UsageError(f"{given}, but {needed}; rename or remove {wrong[0]!r}.")
    if twice := [column for column in header if header.count(column) > 1]:
        raise UsageError(f"{given}; leave one {twice[0]!r}.")
    if missing := [column for column in COLUMNS[:3] if column not in header]:
        raise UsageError(f"{given}, but {needed}; add {missing[0]!r}.")


def _row(cells: Mapping[str, str | None], where: str) -> TableRow:
    if None in cells:
        raise UsageError(
            f"{where} has more cells than the header; numbers have points, not commas, and a name "
            "with a comma stands in quotes."
        )
    given = {name: (value or "").strip() for name, value in cells.items()}
    for name in ("method", "metric"):
        if not given[name]:
            raise UsageError(f"{where}: {name} is empty; write its name.")
    counts = {name: _count(given, name, where) for name in _DEFAULTS}
    mean = _number(given["mean"], "mean", where)
    if not 0 <= mean <= 100:
        raise UsageError(f"{where}: mean is {given['mean']!r}, but must be from 0 to 100 points.")
    sd = _number(given["sd"], "sd", where) if given.get("sd") else None
    if sd is not None and not (0 < sd <= 100 and counts["n"] > 1):
        raise UsageError(
            f"{where}: sd={given['sd']} with n={counts['n']}; an sd is above 0, at most "
            "100 points, and of at least 2 values. Leave it empty if it was not printed."
        )
    selected = given.get("selected_on") or SELECTED_ON[0]
    if selected not in SELECTED_ON:
        raise UsageError(
            f"{where}: selected_on is {selected!r}, but must be {' or '.join(SELECTED_ON)} (or "
            "empty: validation)."
        )
    if counts["n"] < counts["searches"]:
        raise UsageError(
            f"{where}: n={counts['n']} retrainings of searches={counts['searches']}, but each "
            "search has at least one; n counts all of them."
        )
    return TableRow(
        given["method"], given["metric"], mean, sd=sd, on_test=selected == "test", **counts
    )


def _count(given: Mapping[str, str], name: str, where: str) -> int:
    text = given.get(name) or _DEFAULTS[name]
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{where}: {name} is {text!r}, but must be a whole number from 1 on.")
    return int(text)


def _number(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{where}: {name} is {text!r}, but must be a number, in points.")
    return value


def pairs_of(table: PaperTable, proposed: str | None) -> Iterator[tuple[TableRow, TableRow]]:
    """What is compared: the proposed method with each other one, or every pair, higher first.

    Raises:
        UsageError: the table has no such method, or fewer than two.
    """
    names = [row.method for row in table.rows]
    if len(names) < 2:
        raise UsageError(
            f"{table.source} has {len(names)} method with {table.rows[0].metric}; a comparison "
            "needs two."
        )
    if proposed is not None:
        if proposed not in names:
            raise UsageError(
                f"{table.source} has no method {proposed!r}; it has {', '.join(names)}."
                f"{nearest(proposed, names)}"
            )
        own = table.rows[names.index(proposed)]
        yield from ((own, row) for row in table.rows if row is not own)
        return
    yield from itertools.combinations(sorted(table.rows, key=lambda row: -row.mean), 2)
