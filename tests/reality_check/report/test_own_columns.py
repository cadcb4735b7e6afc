"""Columns of the user's own: what a function may do, what is stored, and where it is shown."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reality_check import MethodRecords, UsageError, describe
from reality_check.config.described import Description
from reality_check.report.columns import column_cells, column_titles
from reality_check.report.deviations import find_deviations
from reality_check.report.own_columns import compute_columns, read_columns
from reality_check.report.render.latex import tables_tex
from reality_check.report.summary import Summary
from reality_check.report.tables import results_csv
from reality_check.results import ColumnValue, Cost, ExperimentResults
from reality_check.training.preflight import check_column


@describe(title="search", unit="h", higher_is_better=False)
def hours(records: MethodRecords) -> float:
    return sum(cost.hours for cost in records.costs)


def runs(records: MethodRecords) -> np.int64:
    return np.int64(len({row.reproduction for row in records.rows}))


def empty(records: MethodRecords) -> None:
    return None


def infinite(records: MethodRecords) -> float:
    return float("inf")


def text(records: MethodRecords) -> str:
    return "fast"


def truth(records: MethodRecords) -> bool:
    return True


def gpu(records: MethodRecords) -> float:
    raise RuntimeError("Found no NVIDIA driver on your system")


def ends(records: MethodRecords) -> float:
    raise SystemExit(3)


def two(records: MethodRecords, more: int) -> float:
    return 1.0


def computed(folder: Path, results: ExperimentResults, *names: str) -> tuple[list[str], Any]:
    """Compute columns of this module; return the log, and what is stored of the first method."""
    first, packed = results.methods[:2]
    paths = [f"{__name__}.{name}" for name in names]
    experiment = SimpleNamespace(
        report=SimpleNamespace(columns=paths),
        trained=lambda: SimpleNamespace(methods=[first]),  # the second comes from a pack
    )
    log: list[str] = []
    recorded: Any = SimpleNamespace(experiment=experiment, out_dir=folder)
    costs = (Cost(first.name, "search", "cpu", 1, 2.5), Cost(packed.name, "search", "cpu", 1, 9.0))
    compute_columns(recorded, lambda: dataclasses.replace(results, costs=costs), log.append)
    assert read_columns(folder, packed.name, paths) == ()
    return log, read_columns(folder, first.name, paths)


def test_numbers_and_empty_cells_are_stored(finished: ExperimentResults, tmp_path: Path) -> None:
    log, found = computed(tmp_path, finished, "hours", "runs", "empty")
    assert [(one.value, one.problem) for one in found] == [(2.5, ""), (5.0, ""), (None, "")]
    assert found[0].description == Description("search", "h", higher_is_better=False)
    assert found[1].description == Description("runs")
    assert log == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("infinite", "it returned inf"),
        ("text", "it returned a value of type str"),
        ("truth", "it returned a value of type bool"),
        ("gpu", "it raised RuntimeError: Found no NVIDIA driver"),
        ("ends", "sys.exit"),
        ("none_such", "has no 'none_such'"),
    ],
)
def test_whatever_a_function_does_the_cell_is_empty_and_says_why(
    name: str, why: str, finished: ExperimentResults, tmp_path: Path
) -> None:
    ((sentence,), (found,)) = computed(tmp_path, finished, name)
    assert found.value is None
    assert why in found.problem
    assert sentence.startswith(f"The column {__name__}.{name} of warped is empty: ")


def test_a_column_is_checked_before_anything_is_trained() -> None:
    check_column(f"{__name__}.hours")
    for name in ("two", "none_such"):
        with pytest.raises(UsageError, match=name):
            check_column(f"{__name__}.{name}")
    with pytest.raises(UsageError, match="no installed package has a column named 'latency'"):
        check_column("latency")


def test_columns_that_were_changed_by_hand_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a" / "columns.json"
    file.parent.mkdir()
    file.write_text(json.dumps([{"name": "x.y", "description": {"title": "y"}, "value": "1"}]))
    with pytest.raises(UsageError, match=r"columns\.json cannot be read"):
        read_columns(tmp_path, "a", ["x.y"])


def with_columns(results: ExperimentResults) -> ExperimentResults:
    """The first method has a number, the second a reason, the others were run without."""
    latency = Description("latency", "ms", higher_is_better=False)
    values = (
        (ColumnValue("my.latency", latency, 1.5, code="one"),),
        (ColumnValue("my.latency", latency, problem="it returned nan", code="two"),),
        (),
        (),
    )
    methods = zip(results.methods, values, strict=True)
    return dataclasses.replace(
        results, methods=tuple(dataclasses.replace(m, columns=own) for m, own in methods)
    )


def test_columns_are_shown_where_methods_are_rows(finished: ExperimentResults) -> None:
    results = with_columns(finished)
    summary = Summary(results)
    assert column_titles(summary)[-1] == "latency (ms, lower is better)"
    cells = [column_cells(summary, m.name, "ensemble")[-1] for m in results.methods]
    assert cells == ["1.5", "—", "—", "—"]
    assert r"$n$ & latency (ms, lower is better) \\" in tables_tex(summary)
    rows = list(csv.DictReader(results_csv(results).splitlines()))
    assert {row["my.latency"] for row in rows if row["method"] == "warped"} == {"1.5"}
    assert {row["my.latency"] for row in rows if row["method"] != "warped"} == {""}
    assert "my.latency" not in results_csv(finished)


def test_empty_cells_and_different_code_are_deviations(finished: ExperimentResults) -> None:
    from reality_check.config import load_experiment

    methods = with_columns(finished).methods
    told = [d.text for d in find_deviations(load_experiment("quickstart"), methods, True)]
    assert "The column my.latency of my_loss_50% is empty: it returned nan." in [
        text.replace("{methods}", "my_loss_50%") for text in told
    ]
    assert "The column my.latency was computed by different code for some methods." in told
