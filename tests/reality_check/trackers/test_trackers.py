"""What trackers have after a run, read as their own tools read it."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from support.in_process import run_command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import reality_check as rc
from reality_check.studies.recorded_experiment import read_experiment
from reality_check.trackers.tensorboard import TensorBoardTracker
from reality_check.trackers.tracked_trial import TrackedTrial, tracked
from reality_check.trackers.tracking import BUILT_IN, Tracker
from reality_check.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures("blank_figures")
GIVEN = [
    "methods=[quick/normalized_softmax]",
    "protocol.search.trials=2",
    "protocol.reproductions=1",
]


class Listed:
    """A tracker of a package, which the network fails now and then."""

    told: ClassVar[list[str]] = []
    fails = False

    def __init__(self, experiment: str, out_dir: Path) -> None:
        assert experiment == "tiny"
        assert out_dir.is_dir()

    def log(self, trial: TrackedTrial) -> None:
        if Listed.fails:
            raise ConnectionError("no route to host")
        Listed.told.append(f"{trial.method}, {trial.name}")

    def close(self) -> None:
        Listed.told.append("closed")


@contextlib.contextmanager
def listing() -> Iterator[type[Listed]]:
    """Let it be there, and have nothing told yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUILT_IN, "listed", (__name__, "Listed"))
        patch.setitem(sys.modules, __name__, sys.modules[Listed.__module__])
        patch.setattr(Listed, "told", [])
        patch.setattr(Listed, "fails", False)
        yield Listed


@pytest.fixture
def listed() -> Iterator[type[Listed]]:
    with listing() as tracker:
        yield tracker


@pytest.fixture(scope="module")
def tracked_run(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[list[str]]]:
    """The output folder of a run, and what a tracker was told by then, and when it ran again."""
    folder = tmp_path_factory.mktemp("tracked")
    words = ["run", str(tiny), *GIVEN, "--out", "out", "--track", "listed"]
    told: list[list[str]] = []
    with listing() as tracker:
        for _ in range(2):  # to its end, and when nothing is left to do
            done = run_command(folder, *words)
            assert done.returncode == 0, done.stderr
            told.append(sorted(tracker.told))
    shutil.rmtree(folder / "out" / "trackers")
    return folder / "out", told


@pytest.fixture(scope="module")
def ran(tracked_run: tuple[Path, list[list[str]]]) -> Path:
    """The output folder of a run of which no tracker knows."""
    return tracked_run[0]


@pytest.fixture(scope="module")
def trials(ran: Path) -> dict[str, TrackedTrial]:
    """All of it, by name."""
    recorded = read_experiment(ran)
    every = [
        tracked(recorded, work, index)
        for work in recorded.states().ready()
        for index in work.complete
    ]
    return {f"{trial.method}, {trial.name}": trial for trial in every}


def tell_all(tracker: Tracker, trials: dict[str, TrackedTrial]) -> None:
    """Of all trials, and of one of them twice."""
    for trial in [*trials.values(), trials["normalized_softmax, trial 2"]]:
        tracker.log(trial)


def test_all_that_is_finished_is_told(ran: Path, trials: dict[str, TrackedTrial]) -> None:
    units = ["trial 1", "trial 2", "reproduction 1", "final run 1"]
    names = [f"normalized_softmax, {unit}" for unit in units]
    assert list(trials) == [*names, "without training, baselines 1"]
    results = rc.load_results(ran)
    for name, trial in zip(names, results.methods[0].search, strict=False):
        told = trials[name]
        assert told.params == trial.params
        assert told.values == {"validation MAP@R": trial.value}
        for rows, curve in zip(told.curves, trial.curves, strict=True):
            pairs = [(row["epoch"], row["MAP@R"]) for row in rows]
            assert pairs == [pair for pair in curve if pair[0] >= 0]
            assert ["loss" in row for row in rows] == [row["epoch"] > 0 for row in rows]
    titles = {"mean_average_precision_at_r": "MAP@R", "precision_at_1": "P@1", "r_precision": "RP"}
    of_methods = {
        f"test {titles[row['metric']]} ({row['category']})": row["value"]
        for row in results.records()
        if row["metric"] in titles
    }
    retrained, final = trials[names[2]], trials[names[3]]
    told = {**retrained.values, **final.values}
    assert {name: told[name] for name in of_methods} == of_methods
    assert (
        retrained.params
        == max(
            (trials[name] for name in names[:2]), key=lambda trial: trial.values["validation MAP@R"]
        ).params
    )
    assert final.params["epochs"] > 0
    assert final.values["test MAP@R"] == final.values["test MAP@R (complete)"]
    assert "test MAP@R (raw pixels)" in trials["without training, baselines 1"].values


def test_tensorboard_has_a_run_for_each_training(
    tmp_path: Path, trials: dict[str, TrackedTrial]
) -> None:
    tell_all(TensorBoardTracker("tiny", tmp_path), trials)
    top = tmp_path / "tensorboard"
    runs = {str(file.parent.relative_to(top)) for file in top.rglob("events.*")}
    folds = ["trial 01", "trial 02", "reproduction 01"]
    expected = {f"normalized_softmax/{unit}/fold {fold}" for unit in folds for fold in (1, 2)}
    alone = {"normalized_softmax/final run 01/fold 1", "without training/baselines 01"}
    assert runs == expected | alone
    assert sum(1 for _ in top.rglob("events.*")) == len(runs)
    trial = trials["normalized_softmax, reproduction 1"]
    events = EventAccumulator(str(top / "normalized_softmax" / "reproduction 01" / "fold 2"))
    events.Reload()
    curve = events.Scalars("validation/MAP@R")
    assert [event.step for event in curve] == [row["epoch"] for row in trial.curves[1]]
    values = [event.value for event in curve]
    assert values == pytest.approx([row["MAP@R"] for row in trial.curves[1]])
    losses = [event.value for event in events.Scalars("training/loss")]
    assert losses == pytest.approx([row["loss"] for row in trial.curves[1][1:]])
    (test,) = events.Scalars("result/test MAP@R (aggregate)")
    assert test.value == pytest.approx(trial.values["test MAP@R (aggregate)"])
    kept = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    params = HParamsPluginData.FromString(kept).session_start_info.hparams
    assert params["stage"].string_value == "reproductions"
    for name, value in trial.params.items():
        assert params[name].number_value == value


def test_mlflow_has_a_run_for_each_trial(
    tmp_path: Path, trials: dict[str, TrackedTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient  # what takes a second, where it is used

    from reality_check.trackers.mlflow import MLflowTracker

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    tell_all(MLflowTracker("tiny", tmp_path), trials)
    tell_all(MLflowTracker("tiny", tmp_path), trials)  # as another command does
    client = MlflowClient()
    experiment = client.get_experiment_by_name("tiny")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == sorted(trials)
    trial, run = (found["normalized_softmax, reproduction 1"] for found in (trials, runs))
    assert run.data.params == {name: str(value) for name, value in trial.params.items()}
    assert run.data.tags["stage"] == "reproductions"
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test MAP at R aggregate"] == trial.values["test MAP@R (aggregate)"]
    history = client.get_metric_history(run.info.run_id, "fold 2/validation MAP at R")
    assert [(one.step, one.value) for one in history] == [
        (row["epoch"], row["MAP@R"]) for row in trial.curves[1]
    ]


def test_wandb_keeps_runs_without_a_network(
    tmp_path: Path, trials: dict[str, TrackedTrial], monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    from reality_check.trackers.wandb import WandbTracker

    monkeypatch.setenv("WANDB_MODE", "offline")
    tracker = WandbTracker("tiny", tmp_path)
    names = ["normalized_softmax, trial 1", "normalized_softmax, reproduction 1"]
    for name in names:
        tracker.log(trials[name])
    wandb.teardown()  # as at a process's end: until then its service may still be writing
    kept = [file.read_bytes() for file in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    (reproduction,) = [one for one in kept if names[1].encode() in one]
    assert len(kept) == 2
    texts = [*trials[names[1]].params, "fold 2/MAP@R", "fold 1/loss", "test RP (ensemble)"]
    assert not [text for text in texts if text.encode() not in reproduction]


def test_a_run_tells_each_trial_once(
    tracked_run: tuple[Path, list[list[str]]], trials: dict[str, TrackedTrial]
) -> None:
    assert tracked_run[1] == [sorted([*trials, "closed"])] * 2


def test_a_tracker_that_fails_ends_no_run_and_is_told_later(
    listed: type[Listed],
    ran: Path,
    tmp_path: Path,
    trials: dict[str, TrackedTrial],
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copytree(ran, tmp_path / "out")
    listed.fails = True
    failed = run_command(tmp_path, "track", "out", "listed")
    assert failed.returncode == 1
    (said,) = caplog.messages
    assert said.startswith("tracker listed: ConnectionError: no route to host. ")
    assert said.endswith("reality-check track out listed")
    assert failed.stdout == "listed: 0 trials sent\n"
    listed.fails, listed.told = False, []
    done = run_command(tmp_path, "track", "out", "listed")
    assert done.stdout == "listed: 5 trials sent\n"
    assert listed.told == [*trials, "closed"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlflw", "there is no tracker named 'mlflw'; write one of mlflow, tensorboard, "),
        ("mlflow", "pip install 'pml-extensions[mlflow]'"),
    ],
)
def test_a_tracker_that_is_not_there(
    name: str, message: str, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, "reality_check.trackers.mlflow", raising=False)
    with pytest.raises(UsageError, match=re.escape(message)):
        rc.track(ran, [name])
    assert not (ran / "trackers").exists()
