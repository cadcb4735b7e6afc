"""Results as plain data, from an output folder and for a type checker."""

from __future__ import annotations

import csv
import doctest
import json
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from support.in_process import workers_in_this_process

import reality_check as rc
from reality_check.api import report
from reality_check.config.metrics import METRICS, STAGES
from reality_check.data import load_dataset


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture(scope="module")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The output folder of a run, and what the run returned."""
    folder = tmp_path_factory.mktemp("loaded") / "tiny"
    experiment = rc.load_experiment(tiny, ["protocol.reproductions=2"])
    with workers_in_this_process():
        return folder, rc.run(experiment, folder)


@pytest.mark.slow
def test_loading_gives_what_the_run_gave_and_leaves_the_folder_alone(finished: Any) -> None:
    folder, results = finished
    before = contents(folder)
    loaded = rc.load_results(folder)
    assert contents(folder) == before
    assert loaded.finished
    assert loaded.records() == results.records()
    assert loaded.trials() == results.trials()
    assert loaded.versions["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert {cost.stage for cost in loaded.costs} == {*STAGES, "baselines"}


@pytest.mark.slow
def test_records_are_the_lines_of_the_csv_files(finished: Any) -> None:
    folder, results = finished
    expected = []
    numbers = ("search", "trial", "reproduction")
    for name in ("results.csv", "baselines.csv"):
        with open(folder / name, encoding="utf-8", newline="") as file:
            expected += [
                {
                    **row,
                    **{key: int(row[key]) if row[key] else None for key in numbers},
                    "value": float(row["value"]),
                }
                for row in csv.DictReader(file)
            ]
    assert results.records(baselines=True) == expected
    assert 0 < len(results.records()) < len(expected)
    assert {record["metric"] for record in results.records()} >= set(METRICS)


@pytest.mark.slow
def test_trials_are_a_table_of_plain_values(finished: Any) -> None:
    folder, results = finished
    trials = results.trials()
    assert [(t["stage"], t["number"]) for t in trials] == [
        (stage, number) for stage in STAGES for number in (0, 1)
    ]
    assert len({tuple(trial) for trial in trials}) == 1, "all have the same keys"
    json.dumps(trials, allow_nan=False)
    names = [name for name in trials[0] if name.startswith("params.")]
    assert "params.arguments.temperature" in names
    best = max(trials[:2], key=lambda trial: trial["value"])
    for name in names:
        if best[name] is not None:
            assert {again[name] for again in trials[2:]} == {best[name]}, "reproduced as it was"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["methods"][0]["best_trial"]["number"] == best["number"]
    assert summary["methods"][0]["best_trial"]["value"] == best["value"]


@pytest.mark.slow
@pytest.mark.parametrize(("category", "folds"), [("aggregate", [0, 1]), ("complete", [None])])
def test_a_loaded_network_scores_as_the_run_scored_it(
    category: str, folds: list[int | None], finished: Any
) -> None:
    folder, results = finished
    (method,) = results.methods
    test = load_dataset(rc.load_experiment(folder / "experiment.yaml").dataset).subset(
        range(20, 40)
    )
    for reproduction in (0, 1):
        (recorded,) = [
            row.value
            for row in results.rows
            if (row.category, row.reproduction, row.metric)
            == (category, reproduction, "mean_average_precision_at_r_raw")
        ]
        scores = []
        for fold in folds:
            trained = rc.load_network(folder, method.name, reproduction, fold)
            assert not trained.network.training
            calculator = AccuracyCalculator(
                include=("mean_average_precision_at_r",), k="max_bin_count"
            )
            labels = torch.from_numpy(test.labels)
            scores += calculator.get_accuracy(trained.embed(test), labels).values()
        assert fmean(scores) == pytest.approx(recorded, abs=1e-6)


@pytest.mark.slow
def test_a_network_that_is_not_there_is_refused(finished: Any) -> None:
    folder, results = finished
    name = results.methods[0].name
    with pytest.raises(rc.UsageError, match=rf"no method 'contrastive'; write one of {name}\."):
        rc.load_network(folder, "contrastive")
    with pytest.raises(
        rc.UsageError, match=r"there is no .*002.*fold_0.*model\.pt; write the numb"
    ):
        rc.load_network(folder, name, reproduction=2)


@pytest.mark.slow
def test_a_folder_without_its_records_is_refused(finished: Any, tmp_path: Path) -> None:
    folder, _ = finished
    shutil.copy(folder / "experiment.yaml", tmp_path)
    with pytest.raises(rc.UsageError, match=r"has no studies\.db"):
        rc.load_results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.yaml"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match=r"is not an output folder .*: it has no experiment"):
        rc.load_results(tmp_path)
    with pytest.raises(rc.UsageError, match=r"there is no .*x\.pack; name a pack or an output"):
        rc.load_results(tmp_path / "x.pack")
    with pytest.raises(rc.UsageError, match=r"is not an output folder .*: there is no such folder"):
        report(tmp_path / "x.pack")


def test_every_public_name_can_be_had() -> None:
    for name in rc.__all__:
        assert getattr(rc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'load_result'"):
        getattr(rc, "load_result")  # noqa: B009  # a type checker refuses it, as it should


@pytest.mark.parametrize("function", [rc.load_experiment, rc.run, rc.load_results])
def test_examples_of_docstrings_are_true(function: Any) -> None:
    (example,) = doctest.DocTestFinder().find(function, function.__name__, globs={})
    assert len(example.examples) >= 3
    assert doctest.DocTestRunner().run(example).failed == 0
