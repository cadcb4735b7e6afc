"""The trials of a table that was made elsewhere: a CSV file, rows, a data frame or Optuna studies."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reality_check.studies.storage import open_storage, storage_file
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest, one_line

if TYPE_CHECKING:
    from optuna.study import Study

#: Names of columns besides ``test`` and ``test.NAME``; the first three are required.
COLUMNS = ("method", "trial", "validation", "search", "draw", "seed")
#: A CSV file, rows (or a data frame of pandas), or the studies of each method.
Table = "str | Path | Iterable[Mapping[str, Any]] | Mapping[str, Study | Sequence[Study]]"


@dataclass
class Trial:
    """A trial of a search.

    Attributes:
        label: what the table calls it.
        validation: the score that the search goes by, higher is better; ``None`` without one.
        tests: the test scores of each network that was scored, as fractions by category.
        params: the hyper-parameters, as they are in the table.
        draw: the label of its draw; empty without one.
        number: its number in the search; trials with the same draw, or label, have the same.
    """

    label: str
    validation: float | None = None
    tests: list[dict[str, float]] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    draw: str = ""
    number: int = 0


#: The trials by method and by label of the search.
Searches = dict[str, dict[str, list[Trial]]]


def read_trials(table: Any, columns: Mapping[str, str]) -> Searches:
    """Return the trials of a table; several rows of one trial are several networks of it.

    Args:
        table: see :data:`Table`.
        columns: the names of columns in the table by our names; a minus sign before a name means
            that lower scores are better.

    Raises:
        UsageError: the table lacks a column, has a cell that cannot be read, or rows that contradict
            each other.
    """
    cells = _Cells(_rows(table), columns)
    trials: dict[tuple[str, str, str], Trial] = {}
    seen = set[tuple[str, ...]]()
    for number, row in enumerate(cells.rows, 1):
        method, search, label, seed = (
            cells.text(row, key) for key in ("method", "search", "trial", "seed")
        )
        if not method or not label:
            raise UsageError(f"row {number} has no {'trial' if method else 'method'}.")
        trial = trials.setdefault((method, search, label), Trial(label))
        trial.draw = cells.text(row, "draw") or trial.draw
        trial.params |= {
            key.removeprefix("params."): value
            for key, value in row.items()
            if key.startswith("params.") and value == value and value not in ("", None)
        }
        validation = cells.number(row, "validation", number)
        if validation is not None and trial.validation not in (None, validation):
            raise UsageError(
                f"trial {label} of {method} has the validation scores {trial.validation:g} and "
                f"{validation:g}; leave that of a retraining empty, and tell repeated searches "
                "apart by a column search."
            )
        trial.validation = trial.validation if validation is None else validation
        scores = {key.removeprefix("test."): cells.number(row, key, number) for key in cells.tests}
        if scored := {key: score for key, score in scores.items() if score is not None}:
            key = (method, search, label, seed) if seed else tuple(map(str, row.values()))
            if key in seen:
                raise UsageError(
                    f"trial {label} of {method} is in the table twice"
                    f"{seed and f' with seed {seed}'}; leave one row out, or tell its retrainings "
                    "apart by a column seed."
                )
            seen.add(key)
            trial.tests.append(scored)
    _to_fractions(trials)
    return _numbered(trials)


def _numbered(trials: Mapping[tuple[str, str, str], Trial]) -> Searches:
    """Return the trials by search, numbered by their draws, or else by their labels."""
    labels = dict.fromkeys(trial.draw or trial.label for trial in trials.values())
    whole = all(map(str.isdecimal, labels))
    numbers = {label: int(label) if whole else order for order, label in enumerate(labels)}
    searches: Searches = {}
    for (method, search, _), trial in trials.items():
        trial.number = numbers[trial.draw or trial.label]
        others = searches.setdefault(method, {}).setdefault(search, [])
        if any(other.number == trial.number for other in others):
            raise UsageError(f"two trials of {method} have the draw {trial.draw or trial.label}.")
        others.append(trial)
    return searches


class _Cells:
    """The cells of rows, by our names of columns; ``tests`` are those of test scores."""

    def __init__(self, rows: list[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
        self.rows = rows
        present = list(dict.fromkeys(key for row in rows for key in row))
        tests = [key for key in columns if _is_test(key)] or [k for k in present if _is_test(k)]
        self.tests = tests or ["test"]
        if unknown := [key for key in columns if key not in (*COLUMNS, *tests)]:
            known = (*COLUMNS, "test", "test.NAME")
            raise UsageError(
                f"there is no column {unknown[0]!r} to name; columns are {', '.join(known)}."
                f"{nearest(unknown[0], known)}"
            )
        self._names = {key: columns.get(key, key) for key in (*COLUMNS, *self.tests)}
        if self._names["validation"] in map(self._names.get, self.tests):
            raise UsageError(
                "validation and test name the same column; a score that chose the winner says too "
                "much of it: name one that nothing was chosen by."
            )
        self._signs = dict.fromkeys(self._names, 1)
        for key, name in self._names.items():
            if name.startswith("-") and name not in present:
                self._names[key], self._signs[key] = name[1:], -1
            required = key in (*COLUMNS[:3], *self.tests, *columns)
            if required and self._names[key] not in present:
                raise UsageError(
                    f"the table has no column {self._names[key]!r} for {key}, but "
                    f"{', '.join(map(str, present)) or 'no rows'}; name it with "
                    f"--columns {key}=NAME."
                )

    def text(self, row: Mapping[str, Any], key: str) -> str:
        """Return a cell as text, a whole number without decimals; empty for none."""
        value = row.get(self._names[key])
        if isinstance(value, float) and not math.isnan(value):
            return f"{value:.0f}" if value.is_integer() else repr(value)
        return "" if value is None or value != value else str(value).strip()

    def number(self, row: Mapping[str, Any], key: str, number: int) -> float | None:
        """Return a score, higher is better, or ``None`` for an empty or not finite one."""
        try:
            value = float(self.text(row, key) or "nan")
        except ValueError:
            name = self._names[key]
            raise UsageError(
                f"{name} of row {number} must be a number, got {one_line(row[name])}."
            ) from None
        return self._signs[key] * value if math.isfinite(value) else None


def _is_test(key: str) -> bool:
    return key == "test" or key.startswith("test.")


def _rows(table: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a table."""
    if isinstance(table, str | Path):
        try:
            with open(table, encoding="utf-8-sig", newline="") as file:
                return list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{table} cannot be read as a CSV file: {one_line(error)}.") from error
    if hasattr(table, "to_dict"):  # a data frame of pandas
        table = table.to_dict("records")
    if isinstance(table, Mapping):
        return [
            row
            for method, studies in table.items()
            for search, study in enumerate(studies if isinstance(studies, Sequence) else [studies])
            for row in _study_rows(method, search, study)
        ]
    return list(table)


def _study_rows(method: str, search: int, study: Study) -> Iterator[dict[str, Any]]:
    """Yield the trials of a study that have ended; what did not complete has no validation."""
    if len(study.directions) > 1:
        raise UsageError(
            f"the study {study.study_name} has {len(study.directions)} objectives, so no trial is "
            "its winner; a comparison takes studies of one objective."
        )
    sign = -1 if study.direction.name == "MINIMIZE" else 1
    for trial in study.trials:
        if trial.state.is_finished():
            complete = trial.state.name == "COMPLETE"
            yield {
                **trial.user_attrs,
                **{f"params.{name}": value for name, value in trial.params.items()},
                "method": method,
                "search": search,
                "trial": trial.number,
                "validation": sign * trial.value if complete else None,
            }


def load_studies(url: str, names: Sequence[str]) -> dict[str, list[Study]]:
    """Return Optuna's studies by method.

    Args:
        url: their storage, a URL such as ``sqlite:///studies.db``.
        names: ``STUDY``, or ``METHOD=STUDY``; studies of one method are repeated searches.

    Raises:
        UsageError: there is no such storage or study.
    """
    from optuna import get_all_study_names, load_study

    file = storage_file(url)
    if file is not None and not file.exists():
        raise UsageError(f"--optuna {url} names a file that does not exist.")
    storage = open_storage(url)
    present = get_all_study_names(storage=storage)
    studies: dict[str, list[Study]] = {}
    for text in names:
        method, _, name = ("", "", text) if text in present else text.rpartition("=")
        if name not in present:
            raise UsageError(
                f"--optuna {url} has no study {name!r}, but {', '.join(present) or 'none'}."
            )
        studies.setdefault(method or name, []).append(load_study(study_name=name, storage=storage))
    return studies


def _to_fractions(trials: Mapping[tuple[str, str, str], Trial]) -> None:
    """Divide test scores in percent by 100.

    Raises:
        UsageError: scores are neither fractions nor percent.
    """
    tests = [(method, scores) for (method, *_), t in trials.items() for scores in t.tests]
    for category in dict.fromkeys(key for _, scores in tests for key in scores):
        most: dict[str, float] = {}
        for method, scores in tests:
            most[method] = max(most.get(method, 0.0), abs(scores.get(category, 0.0)))
        if max(most.values()) <= 1:
            continue
        if max(most.values()) > 100 or any(0 < value <= 1 for value in most.values()):
            raise UsageError(
                "test scores must all be fractions (at most 1) or all percent (at most 100), got "
                f"up to {', '.join(f'{value:g} of {name}' for name, value in most.items())}; "
                "divide all by one number, which changes no verdict."
            )
        for _, scores in tests:
            if category in scores:
                scores[category] /= 100
