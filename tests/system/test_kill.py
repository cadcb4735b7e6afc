"""Workers and parents killed at random moments: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import optuna
import pytest
from support.command import write_large_images
from support.pace import slowness, wait_until
from support.preloaded import Started

from reality_check.results import TrialRecord
from reality_check.studies.progress import worker_states
from reality_check.studies.trial import read_trial
from reality_check.utils import checkpoints

EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: blobs.npz}
model: {base: conv4, arguments: {width: 8}}
protocol:
  base: quick_one_search
  split: {folds: 3}
  training: {iterations_per_epoch: 12, max_epochs: 5, embedding_size: 8, batch_size: 8}
  search: {kind: repeated, trials: 2, repeats: 2, startup_trials: 1}
  reproductions: 1
methods: [warped_softmax]
"""
STAGES = {"search": 2, "search_1": 2, "reproductions": 2, "final": 2}


def prepare(folder: Path, experiment: str = EXPERIMENT) -> None:
    write_large_images(folder / "blobs.npz")
    (folder / "experiment.yaml").write_text(experiment)


def start(folder: Path, out: str, workers: int, seconds: float = 30.0) -> Started:
    """Run the experiment, with that many seconds between two checkpoints."""
    words = ["run", "experiment.yaml", "--out", out, "--workers", str(workers)]
    settings = {"reality_check.training.fold_checkpoints": {"CHECKPOINT_SECONDS": seconds}}
    return Started(folder, folder / f"{out}.log", *words, settings=settings)


def finish(folder: Path, out: str, workers: int) -> None:
    process = start(folder, out, workers)
    assert process.wait(timeout=300 * slowness()) == 0, process.complaints()


def worker_pids(parent: int) -> set[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return set(map(int, path.read_text().split())) if path.exists() else set()


def training(out: Path, epochs: int = 1) -> set[int]:
    """Workers that have trained so many epochs of a fold run, which they are in the middle of."""
    return {s["worker"]["pid"] for s in worker_states(out) if s.get("epoch", 0) >= epochs}


def stopped_at_checkpoint(parent: int, out: Path) -> bool:
    """Stop all workers if a training would continue from a checkpoint, with evaluations to come."""
    pids = training(out, 0) & worker_pids(parent)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    # After four of five epochs the patience may be exhausted.
    found = any(
        state and "progress" in state and state["progress"]["position"]["spent"] < 4
        for state in map(checkpoints.load, out.rglob("latest.pt"))
    )
    for pid in () if found else pids:
        os.kill(pid, signal.SIGCONT)
    return found


def kill_at_random(folder: Path, out: str, workers: int, times: int, seed: int) -> None:
    """Start the run ``times`` times; kill a worker that trains or not, and then the parent.

    The first parent is killed when a training has a checkpoint to continue from. Whoever has
    nothing left to kill fails.
    """
    chance = random.Random(seed)
    for kills in range(times):
        process = start(folder, out, workers, 0.0)  # one after each evaluation

        def check(process: Started = process, kills: int = kills) -> None:
            log = process.complaints()
            assert process.poll() is None, f"the run was over after {kills} kills: {log}"

        found: set[int] = set()  # by the last call: the next moment another fold may begin

        def victims(process: Started = process, found: set[int] = found) -> set[int]:
            found.clear()
            found.update(training(folder / out) & worker_pids(process.pid))
            return found

        wait_until(victims, 120, check)
        time.sleep(chance.uniform(0.0, 0.5))
        if chance.random() < 0.5:
            wait_until(victims, 120, check)
            os.kill(chance.choice(sorted(found)), signal.SIGKILL)
            time.sleep(chance.uniform(0.0, 1.0))  # another begins, or works already
        if kills == 0:
            wait_until(partial(stopped_at_checkpoint, process.pid, folder / out), 120, check)
        check()
        process.kill()
        process.wait(timeout=60)


def trials(folder: Path, out: str) -> dict[str, list[TrialRecord]]:
    url = f"sqlite:///{folder / out / 'studies.db'}"
    names = optuna.study.get_all_study_names(storage=url)
    return {
        name: [read_trial(t) for t in optuna.load_study(study_name=name, storage=url).trials]
        for name in names
    }


def check_kills(folder: Path, out: str, at_least: int) -> None:
    """Trials were lost in the middle, and by nothing but kills."""
    failed = [t for all_ in trials(folder, out).values() for t in all_ if t.state == "failed"]
    assert [t for t in failed if t.error is not None or t.stopped] == []
    assert sum(trial.was_abandoned for trial in failed) >= at_least


def check_exact_counts(folder: Path, out: str, *methods: str) -> None:
    """Every trial of every stage has one complete attempt, and nothing is left running."""
    attempts_of = trials(folder, out)
    for method in methods:
        for stage, wanted in STAGES.items():
            attempts = attempts_of[f"{method}/{stage}"]
            complete = [t.trial_index for t in attempts if t.state == "complete"]
            assert sorted(complete) == list(range(wanted)), (method, stage)
            assert {t.state for t in attempts} <= {"complete", "failed"}, (method, stage)


def search_history(folder: Path, out: str) -> dict[str, list[tuple[object, ...]]]:
    return {
        name: sorted(
            (t.trial_index, t.value, sorted(t.params.items()), t.curves)
            for t in attempts
            if t.state == "complete"
        )
        for name, attempts in trials(folder, out).items()
    }


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_killed_runs_end_with_exact_counts_and_identical_results(tmp_path: Path) -> None:
    prepare(tmp_path)
    finish(tmp_path, "whole", 1)
    kill_at_random(tmp_path, "killed", 1, times=4, seed=1)
    finish(tmp_path, "killed", 1)
    check_kills(tmp_path, "killed", at_least=3)
    check_exact_counts(tmp_path, "whole", "warped_softmax")
    check_exact_counts(tmp_path, "killed", "warped_softmax")
    assert search_history(tmp_path, "killed") == search_history(tmp_path, "whole")
    for file in ("results.csv", "baselines.csv"):
        whole = (tmp_path / "whole" / file).read_bytes()
        assert (tmp_path / "killed" / file).read_bytes() == whole


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_several_workers_killed_at_random_end_with_exact_counts(tmp_path: Path) -> None:
    more = EXPERIMENT.replace("folds: 3", "folds: 4").replace("]\n", ", contrastive]\n")
    prepare(tmp_path, more)  # for more workers
    kill_at_random(tmp_path, "killed", 2, times=5, seed=2)
    finish(tmp_path, "killed", 2)
    check_kills(tmp_path, "killed", at_least=4)
    check_exact_counts(tmp_path, "killed", "warped_softmax", "contrastive")
