"""The user's own columns of a report.

They are computed when a run ends, and stored in ``METHOD/columns.json`` of the output folder, so
that reports and packs need not import the user's code.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reality_check.config.classes import find_class, source_fingerprint
from reality_check.config.described import Description, description_of
from reality_check.results import ColumnValue, ExperimentResults, MethodRecords
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.errors import UsageError, reason
from reality_check.utils.files import atomic_write


def compute_columns(
    recorded: RecordedExperiment,
    collect: Callable[[], ExperimentResults],
    log: Callable[[str], None],
) -> None:
    """Compute and store the user's columns of each method that is trained in this run.

    If a function fails, its cell stays empty, and the reason is stored.

    Args:
        recorded: the experiment, whose work is done.
        collect: returns the results; called only if there are such columns.
        log: called with a sentence about each cell that is empty because its function failed.
    """
    experiment = recorded.experiment
    if not experiment.report.columns:
        return
    results = collect()
    for method in experiment.trained().methods:
        records = MethodRecords(
            next(record for record in results.methods if record.name == method.name),
            tuple(row for row in results.rows if row.method == method.name),
            tuple(cost for cost in results.costs if cost.method == method.name),
            recorded.out_dir,
        )
        values = [_column_value(name, records) for name in experiment.report.columns]
        for value in values:
            if value.problem:
                log(f"The column {value.name} of {method.name} is empty: {value.problem}.")
        content = json.dumps(list(map(dataclasses.asdict, values)), indent=1)
        atomic_write(_path(recorded.out_dir, method.name), content + "\n")


def read_columns(out_dir: Path, method: str, names: Sequence[str]) -> tuple[ColumnValue, ...]:
    """Return the stored values of a method's columns, in the order of ``names``.

    Columns that were not computed are left out.

    Raises:
        UsageError: the file cannot be read.
    """
    file = _path(out_dir, method)
    if not names or not file.exists():
        return ()
    try:
        stored = {
            entry["name"]: ColumnValue(
                **entry | {"description": Description(**entry["description"])}
            )
            for entry in json.loads(file.read_text("utf-8"))
        }
        # Raises if a value is not a number.
        math.fsum(value.value or 0.0 for value in stored.values())
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{file} cannot be read ({reason(error)}); delete it, and run the experiment again "
            "where the column is wanted."
        ) from None
    return tuple(stored[name] for name in names if name in stored)


def _path(out_dir: Path, method: str) -> Path:
    return out_dir / method / "columns.json"


def _column_value(name: str, records: MethodRecords) -> ColumnValue:
    """Return the value of a column; if its function fails, the value has a ``problem``."""
    # Until the function is found, its name is the title, which has at most 60 characters.
    description, code = Description(name[:60]), ""
    try:
        function = find_class(name, "column")
        description, code = description_of(function), source_fingerprint(name, "column") or ""
        return ColumnValue(name, description, _number(function, records), code=code)
    except UsageError as error:
        return ColumnValue(name, description, code=code, problem=str(error).rstrip("."))


def _number(function: Callable[[MethodRecords], Any], records: MethodRecords) -> float | None:
    """Return the number, or None, that the user's ``function`` returns.

    Raises:
        UsageError: ``function`` raised, or returned neither a finite number nor None.
    """
    try:
        returned = function(records)
    except (Exception, SystemExit) as error:
        raise UsageError(f"it raised {reason(error)}") from error
    if returned is None:
        return None
    if isinstance(returned, bool) or not isinstance(returned, numbers.Real):
        kind = type(returned).__name__
        raise UsageError(f"it returned a value of type {kind}, but must return a number, or None")
    if not math.isfinite(returned):
        raise UsageError(f"it returned {float(returned)}, but must return a finite number, or None")
    return returned if isinstance(returned, int) else float(returned)
