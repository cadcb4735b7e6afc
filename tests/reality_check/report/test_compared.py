"""The verdict on trials that were made elsewhere: that of a run, or a sentence why there is none."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from support.recorded_runs import experiment, record

from reality_check import UsageError, compare
from reality_check.api import report
from reality_check.cli.main import main
from reality_check.results import ExperimentResults, MethodResults, ResultRow, TrialRecord

Rows = list[dict[str, Any]]
GIVEN = {"draws": "independent", "scores": "retrained", "common_draws": "yes"}
METHODS = "methods=[quick/normalized_softmax,quick/contrastive,quick/warped_softmax]"


def sweep(trials: int = 12, **searches: int) -> Rows:
    """Trials of the methods ``a`` and ``b``, or of so many searches of each method."""
    draw = np.random.default_rng(0)
    return [
        {"method": method, "search": search, "trial": trial, "validation": v, "test": v - 0.1}
        for method, number in (searches or {"a": 1, "b": 1}).items()
        for search in range(number)
        for trial, v in enumerate(draw.uniform(0.3, 0.6, trials).round(4))
    ]


def changed(rows: Rows, *numbers: int, **cells: Any) -> Rows:
    """The rows, of which some have other cells; a cell that is ``...`` is left out."""
    new = [row | cells if number in numbers else row for number, row in enumerate(rows)]
    return [{key: cell for key, cell in row.items() if cell is not ...} for row in new]


@pytest.mark.parametrize(
    "search",
    [
        "{kind: subsets, trials: 16, budget: 5}",
        "{kind: repeated, trials: 3, repeats: 12, startup_trials: 2}",
    ],
)
def test_trials_csv_gives_the_verdict_of_its_run(
    search: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(experiment(f"protocol.search={search}", METHODS), tmp_path / "run")
    report(tmp_path / "run")
    run = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    words = ["--draws", "independent" if "subsets" in search else "adaptive"]
    words += ["--budget", "5", "--scores", "retrained", "--common-draws", "yes"]
    assert main(["compare", str(tmp_path / "run" / "trials.csv"), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for key in ("verdicts", "budget_curves"):
        of_run, of_table = (sorted(map(without_title, data[key]), key=str) for data in (run, found))
        assert of_table == of_run
    keys = ("method", "category", "n", "mean", "low", "high")
    expected = {
        tuple(map(row.get, keys)) for row in run["results"] if row["metric"] == PRIMARY
    }
    assert {tuple(map(row.get, keys)) for row in found["results"]} == expected
