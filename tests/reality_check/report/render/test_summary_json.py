"""summary.json: keys that do not change, plain numbers, the same values as elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from reality_check.report.analysis import Analysis
from reality_check.report.render.summary_json import VERSION, summary_data, summary_json
from reality_check.report.sections.verdict import PAIR_KEYS
from reality_check.report.summary import Summary
from reality_check.results import Cost, ExperimentResults
from reality_check.statistics import t_interval

INTERVAL = {"n", "mean", "low", "high"}
#: The contract of docs/results.md. A key that goes or changes its meaning needs another VERSION.
KEYS = {
    "": {
        "schema", "version", "experiment", "environment", "metrics", "methods", "results",
        "baselines", "basis", "budget_curves", "controls", "verdict", "verdicts", "deviations",
        "cost",
    },
    "experiment": {
        "name", "protocol", "reference", "finished", "dataset", "trunk", "weights", "seed",
        "categories", "confidence",
    },
    "environment": {"versions", "machine", "device", "gpu", "trained_with"},
    "metrics": {"name", "title", "primary"},
    "methods": {
        "name", "loss", "arguments", "miner", "samples_per_class", "normalize_embeddings",
        "searched", "control_of", "best_trial", "retrained", "stages", "columns",
    },
    "methods.best_trial": {"search", "number", "value", "params"},
    "methods.retrained": {"search", "number"},
    "methods.stages": {"search", "reproductions", "final"},
    "methods.stages.search": {"complete", "planned", "diverged", "failed"},
    "results": {"effective_n", "weakness", "method", "category", "metric", "runs"} | INTERVAL,
    "baselines": {"method", "category", "metric"} | INTERVAL,
    "verdicts": {*PAIR_KEYS, "about", "sentence"},
    "deviations": {"topic", "text", "serious"},
    "cost": {"method", "stage", "device", "attempts", "hours"},
}  # fmt: skip


def strict(text: str) -> dict[str, Any]:
    """Parse JSON as the standard has it: no NaN, no Infinity."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def written(results: ExperimentResults) -> dict[str, Any]:
    return strict(summary_json(summary_data(Analysis(Summary(results)))))


@pytest.fixture
def data(results: ExperimentResults) -> dict[str, Any]:
    costs = (Cost("", "baselines", "cpu", 1, 0.25), Cost("warped", "search", "cuda", 9, 1.5))
    return written(dataclasses.replace(results, costs=costs, versions={"torch": "2.9.1"}))


def at(data: Any, path: str) -> Any:
    """What stands at a dotted path; of a list its first entry."""
    for key in filter(None, path.split(".")):
        data = data[key]
        data = data[0] if isinstance(data, list) else data
    return data


@pytest.mark.parametrize("path", KEYS)
def test_the_keys_are_those_of_the_documented_version(data: dict[str, Any], path: str) -> None:
    assert VERSION == 3
    assert data["version"] == VERSION
    assert set(at(data, path)) == KEYS[path]


def test_entries_of_a_list_have_the_same_keys(data: dict[str, Any]) -> None:
    for name, value in data.items():
        if isinstance(value, list) and name not in ("budget_curves", "controls"):
            assert value, f"nothing in {name}"
            assert {frozenset(entry) for entry in value} == {frozenset(KEYS[name])}


def test_means_and_intervals_are_those_of_the_rows(
    data: dict[str, Any], results: ExperimentResults
) -> None:
    metric = "r_precision"
    values = [
        row.value
        for row in results.rows
        if (row.method, row.category, row.metric) == ("<b>x</b>", "ensemble", metric)
    ]
    (found,) = (
        entry
        for entry in data["results"]
        if (entry["method"], entry["category"], entry["metric"]) == ("<b>x</b>", "ensemble", metric)
    )
    expected = t_interval(values)
    assert found["mean"] == pytest.approx(sum(values) / 5)
    assert found["n"] == 5
    assert (found["low"], found["high"]) == (expected.low, expected.high)


def test_the_winner_has_its_hyper_parameters(
    data: dict[str, Any], results: ExperimentResults
) -> None:
    best = max(results.methods[0].search, key=lambda trial: trial.value or 0.0)
    found = data["methods"][0]["best_trial"]
    assert found == {
        "search": 0,
        "number": best.trial_index,
        "value": best.value,
        "params": best.params,
    }
    assert data["methods"][1]["stages"]["search"]["diverged"] == 1
    assert data["methods"][3]["stages"]["reproductions"]["planned"] == 5
    assert data["methods"][3]["stages"]["reproductions"]["complete"] == 2


def test_verdicts_say_what_the_report_says(data: dict[str, Any]) -> None:
    kinds = {entry["verdict"] for entry in data["verdicts"]}
    assert kinds == {"above", "not distinguishable"}
    for entry in data["verdicts"]:
        assert (entry["holm_p"] is None) == (min(entry["n_better"], entry["n_other"]) < 3), (
            "two runs are not tested"
        )
        below = entry["holm_p"] is not None and entry["holm_p"] < 0.05
        assert (entry["verdict"] == "above") == below
        tied = " is not distinguishable from " in entry["sentence"]
        assert tied == (entry["verdict"] == "not distinguishable")
        assert entry["low"] is None or entry["low"] < entry["difference"] < entry["high"]


def test_costs_environment_and_deviations(data: dict[str, Any]) -> None:
    assert data["cost"][0]["method"] is None
    assert data["cost"][1]["hours"] == 1.5
    assert data["environment"]["versions"] == {"torch": "2.9.1"}
    assert [entry["serious"] for entry in data["deviations"]] == [False, True]


def test_numbers_that_json_lacks_are_null(results: ExperimentResults) -> None:
    rows = [
        dataclasses.replace(row, value=math.nan if row.method == "warped" else np.float64(0.5))
        for row in results.rows
    ]
    search = tuple(
        dataclasses.replace(trial, params={"a": np.float32(0.25), "b": math.inf})
        for trial in results.methods[0].search
    )
    methods = (dataclasses.replace(results.methods[0], search=search), *results.methods[1:])
    data = written(dataclasses.replace(results, rows=tuple(rows), methods=methods))
    assert data["results"][0]["mean"] is None
    assert data["methods"][0]["best_trial"]["params"] == {"a": 0.25, "b": math.inf}


def test_an_experiment_that_has_not_begun(build: Any) -> None:
    empty = dataclasses.replace(build({}), rows=(), baselines=(), methods=(), config={})
    data = written(empty)
    assert data["results"] == []
    assert data["verdicts"] == []
    assert data["experiment"]["dataset"] is None
    assert data["verdict"].startswith("No results yet")


def test_metrics_carry_the_names_that_tables_print(asked: ExperimentResults) -> None:
    raw = dataclasses.replace(asked.rows[0], metric="r_precision_raw")
    titles = {
        entry["name"]: entry["title"]
        for entry in written(dataclasses.replace(asked, rows=(*asked.rows, raw)))["metrics"]
    }
    assert titles["precision_at_1"] == "P@1"
    assert titles["recall_at_2"] == "R@2"
    assert titles["r_precision_raw"] == "RP (raw embeddings)"
