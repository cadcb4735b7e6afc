"""Folds side by side, and one network trained by several processes, against one process."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.pace import wait_until
from support.preloaded import Started, succeed
from torch.distributed.run import main as torchrun

from reality_check.api import run
from reality_check.config import Experiment, load_experiment
from reality_check.data import load_dataset, split_dataset
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.fold_executors import LOST, FoldJob, ProcessExecutor, SerialExecutor
from reality_check.launch.local import LocalWorkers
from reality_check.launch.parallelism import Parallelism
from reality_check.results import ExperimentResults
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.methods import fill_method, middle_params
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError
from reality_check.utils.lease import LeaseLost

CPU = torch.device("cpu")
pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def experiment(tiny: Path) -> Experiment:
    return load_experiment(tiny, ["protocol.search.trials=1"])


def jobs(made: Experiment, folder: Path, **changes: Any) -> list[FoldJob]:
    data, protocol = load_dataset(made.dataset), made.protocol
    method = made.methods[0]
    settings = fill_method(method, protocol, middle_params(method, protocol))
    size = protocol.training.embedding_size
    settings = dataclasses.replace(settings, **changes)
    return [
        FoldJob(
            FoldTask(settings, made.model, protocol.training, size, number, 10 + number),
            number,
            fold.train,
            fold.validation,
            folder / f"fold_{number}",
        )
        for number, fold in enumerate(split_dataset(data, protocol.split).folds)
    ]


def outcome(result: FoldResult) -> tuple[Any, ...]:
    return result.value, result.epoch, result.epochs_spent, repr(result.curve)


def weights(job: FoldJob) -> dict[str, torch.Tensor]:
    state = checkpoints.load(job.folder / "model.pt")
    assert state is not None
    return state


# -- folds at once -----------------------------------------------------------------------------


def test_folds_side_by_side_give_bit_identical_results(
    tmp_path: Path, experiment: Experiment
) -> None:
    alone, several = jobs(experiment, tmp_path / "alone"), jobs(experiment, tmp_path / "several")
    runner = ProcessExecutor(2, functools.partial(load_dataset, experiment.dataset), CPU)
    told: list[dict[str, Any]] = []
    try:
        results = runner.run(several, told.append)
        again = runner.run(several, told.append)  # the same processes; everything is finished
        check_that_lost_work_is_left_alone(runner, jobs(experiment, tmp_path / "lost"))
    finally:
        runner.close()
    expected = SerialExecutor(load_dataset(experiment.dataset), CPU).run(
        alone, lambda position: None
    )
    assert [outcome(r) for r in results] == [outcome(r) for r in expected]
    assert [outcome(r) for r in again] == [outcome(r) for r in expected]
    for one, other in zip(alone, several, strict=True):
        first, second = weights(one), weights(other)
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert {position["fold"] for position in told} == {0, 1}


def check_that_lost_work_is_left_alone(runner: ProcessExecutor, lost: list[FoldJob]) -> None:
    """The worker was paused for too long; its processes wait until it has asked, and are ended."""
    asked: list[float] = []

    def renew_lease() -> float:
        asked.append(time.monotonic())
        if len(asked) > 2:
            raise LeaseLost
        return asked[0]

    with pytest.raises(LeaseLost):
        runner.run(lost, lambda position: None, renew_lease)
    assert len(asked) == 3
    assert not any(path.is_file() for path in lost[0].folder.parent.rglob("*"))
    assert runner._pool is None


def diverge_and_train_again(words: tuple[str, ...]) -> int:
    """With the experiment words[0], in the folder words[1]."""
    made, folder = load_experiment(words[0], ["protocol.search.trials=1"]), Path(words[1])
    rates = {"trunk": 1e30, "embedder": 1e30, "loss": 1e30}
    runner = ProcessExecutor(2, functools.partial(load_dataset, made.dataset), CPU)
    with pytest.raises(Diverged, match=r"epoch 1|NaN or infinite"):
        runner.run(jobs(made, folder, learning_rates=rates), lambda position: None)
    assert runner._pool is None
    # It starts again for the next trial.
    assert len(runner.run(jobs(made, folder / "next"), lambda position: None)) == 2
    runner.close()
    return 0


def test_a_diverged_fold_ends_the_others_and_tells(tmp_path: Path, tiny: Path) -> None:
    succeed(tmp_path, diverge_and_train_again, tiny, tmp_path, spares=4)


def lose_a_process(words: tuple[str, ...]) -> int:
    """Of the experiment words[0], in the folder words[1], when it has begun to train."""
    endless = ["max_epochs=100000", "patience=null"]
    made = load_experiment(words[0], [f"protocol.training.{key}" for key in endless])
    runner = ProcessExecutor(2, functools.partial(load_dataset, made.dataset), CPU)
    begun = threading.Event()

    def kill() -> None:
        begun.wait()
        victim = multiprocessing.active_children()[0].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    runner.run(jobs(made, Path(words[1])), lambda position: begun.set())
    return 0


def test_a_killed_fold_process_ends_its_worker(tmp_path: Path, tiny: Path) -> None:
    """So that the storage finds the trial lost, and another worker continues it."""
    words = [str(tiny), str(tmp_path / "out")]
    process = Started(tmp_path, tmp_path / "log", *words, program=lose_a_process, spares=2)
    assert process.wait(600) == LOST


# -- through the whole harness -----------------------------------------------------------------


def scores(results: ExperimentResults) -> list[tuple[Any, ...]]:
    return sorted((r.category, r.reproduction, r.metric, r.value) for r in results.rows)


@pytest.fixture(scope="module")
def alone(
    blank_figures: None,
    preloaded_workers: None,
    tmp_path_factory: pytest.TempPathFactory,
    experiment: Experiment,
) -> ExperimentResults:
    return run(experiment, tmp_path_factory.mktemp("alone") / "out")


def test_an_experiment_with_folds_side_by_side(
    tmp_path: Path, alone: ExperimentResults, experiment: Experiment
) -> None:
    assert scores(run(experiment, tmp_path / "out", Parallelism(folds_at_once=2))) == scores(alone)


def test_an_experiment_whose_networks_are_trained_together(
    tmp_path: Path,
    alone: ExperimentResults,
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    together = scores(run(experiment, tmp_path / "out", Parallelism(processes_per_network=2)))
    expected = scores(alone)
    assert [row[:3] for row in together] == [row[:3] for row in expected]
    # Sums in another order: near-ties may swap places, no more.
    for one, other in zip(together, expected, strict=True):
        assert one[3] == pytest.approx(other[3], abs=0.03), one
    # A strategy that finds no work, because others have done it all, ends in peace.
    late = LocalWorkers(tmp_path / "out", Parallelism(processes_per_network=2))
    try:
        late.wait(lambda: None)
    finally:
        late.stop()


def be_torchrun(words: tuple[str, ...]) -> int:
    """Take some steps in words[0] processes, and write into the folder words[1]."""
    count, folder = words
    start = ["--standalone", "--nproc-per-node", count, "-m", "support.two_rank_steps"]
    torchrun([*start, folder])
    return 0


def test_together_equals_one_process_on_the_full_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights after some steps, with a miner and with proxies, from the same seeds."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for number, count in (("one", 1), ("two", 2)):
        succeed(tmp_path, be_torchrun, count, tmp_path / number, spares=count)
    compared = 0
    for file in sorted((tmp_path / "one").glob("*.pt")):
        one, two = torch.load(file), torch.load(tmp_path / "two" / file.name)
        assert one["losses"] == pytest.approx(two["losses"], rel=1e-5)
        for key, value in one["state"].items():
            torch.testing.assert_close(two["state"][key], value, rtol=1e-4, atol=1e-6)
            compared += 1
    assert compared > 20


@pytest.mark.usefixtures("preloaded_workers")
def test_batchnorm_that_learns_is_refused_on_cpus(tmp_path: Path, tiny: Path) -> None:
    made = load_experiment(tiny, ["protocol.training.freeze_batchnorm=false"])
    with pytest.raises(UsageError, match=r"statistics of BatchNorm; write training.freeze"):
        run(made, tmp_path / "out", Parallelism(processes_per_network=2))


@pytest.mark.parametrize(
    ("processes", "text"),
    [
        ({"processes_per_network": 3}, "batch_size=8 cannot be divided among 3"),
        ({"processes_per_network": 2, "folds_at_once": 2}, "only one of them more"),
        ({"folds_at_once": 0}, "at least 1"),
    ],
)
def test_numbers_of_processes_that_do_not_fit(
    tmp_path: Path, experiment: Experiment, processes: dict[str, int], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        run(experiment, tmp_path / "out", Parallelism(**processes))
    assert not (tmp_path / "out").exists()


def run_with(words: tuple[str, ...]) -> int:
    """Run the experiment words[0] in the folder words[1], two at a time of words[2]."""
    run(load_experiment(words[0]), words[1], Parallelism(**{words[2]: 2}))
    return 0


@pytest.mark.parametrize("how", ["folds_at_once", "processes_per_network"])
def test_workers_die_with_the_run(
    tmp_path: Path, tiny: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is killed: fold processes and torchrun's processes end too."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    out = tmp_path / how
    words = [str(tiny), str(out), how]
    process = Started(tmp_path, tmp_path / "log", *words, program=run_with, spares=1)
    wait_until(lambda: any(out.rglob("records")) and len(descendants(process.pid)) == 3, 300)
    others = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(runs, others)), 300)


def descendants(pid: int) -> set[int]:
    """Process ids of its children, and of theirs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended meanwhile
        return set()
    return {int(child) for child in children}.union(*map(descendants, map(int, children)))


def runs(pid: int) -> bool:
    """Whether there is such a process, which has not ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
