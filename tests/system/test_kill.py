"""Workers and parents killed at random moments: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import optuna
import pytest

EXPERIMENT = """\
dataset: {name: blobs, reader: npz, path: blobs.npz}
model: {base: conv4, arguments: {width: 8}}
protocol:
  base: quick
  training: {iterations_per_epoch: 12, max_epochs: 8, embedding_size: 8, batch_size: 8}
  search: {trials: 4, startup_trials: 2}
  reproductions: 2
methods: [warped_softmax, contrastive]
"""
STAGES = {"search": 4, "reproductions": 2, "final": 2}


def prepare(folder: Path) -> None:
    """24 classes of 6 noisy 32 x 32 patterns, and the experiment on them."""
    draw = np.random.default_rng(0)
    patterns = draw.uniform(0, 255, (24, 1, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    images = np.clip(patterns + draw.normal(0, 90, (24, 6, 32, 32)), 0, 255)
    np.savez(
        folder / "blobs.npz",
        images=images.reshape(144, 32, 32).astype(np.uint8),
        labels=np.repeat(np.arange(24), 6),
        class_names=np.array([f"class_{n:02d}" for n in range(24)]),
    )
    (folder / "experiment.yaml").write_text(EXPERIMENT)


def start(folder: Path, out: str, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "reality_check", "run", "experiment.yaml"]
    command += ["--out", out, "--workers", str(workers)]
    with (folder / f"{out}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def finish(folder: Path, out: str, workers: int) -> None:
    status = start(folder, out, workers).wait(timeout=300)
    assert status == 0, (folder / f"{out}.log").read_text()


def worker_pids(parent: int) -> list[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def kill_at_random(folder: Path, out: str, workers: int, times: int, seed: int) -> Counter[str]:
    """Start the run ``times`` times and kill the parent or a worker after a random while."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    while sum(killed.values()) < times:
        process = start(folder, out, workers)
        # Beyond the imports, so that most kills hit real work.
        time.sleep(chance.uniform(5.0, 11.0))
        victims = worker_pids(process.pid)
        if process.poll() is not None:
            assert process.returncode == 0, (folder / f"{out}.log").read_text()
            return killed
        if victims and chance.random() < 0.5:
            os.kill(chance.choice(victims), signal.SIGKILL)
            killed["worker"] += 1
            time.sleep(chance.uniform(0.0, 2.0))
        process.kill()
        process.wait()
        killed["parent"] += 1
    return killed


def trials(folder: Path, out: str) -> dict[str, list[optuna.trial.FrozenTrial]]:
    url = f"sqlite:///{folder / out / 'studies.db'}"
    names = optuna.study.get_all_study_names(storage=url)
    return {name: optuna.load_study(study_name=name, storage=url).trials for name in names}


def check_exact_counts(folder: Path, out: str) -> None:
    """Every trial of every stage has one complete attempt, and nothing is left running."""
    found = trials(folder, out)
    for method in ("warped_softmax", "contrastive"):
        for stage, wanted in STAGES.items():
            attempts = found[f"{method}/{stage}"]
            complete = [t.user_attrs["trial_index"] for t in attempts if t.state.name == "COMPLETE"]
            assert sorted(complete) == list(range(wanted)), (method, stage)
            assert all(t.state.is_finished() for t in attempts), (method, stage)


def search_history(folder: Path, out: str) -> dict[str, list[tuple[object, ...]]]:
    return {
        name: sorted(
            (t.user_attrs["trial_index"], t.value, sorted(t.params.items()))
            for t in attempts
            if t.state.name == "COMPLETE"
        )
        for name, attempts in trials(folder, out).items()
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_killed_runs_end_with_exact_counts_and_identical_results(tmp_path: Path) -> None:
    prepare(tmp_path)
    finish(tmp_path, "whole", 1)
    killed = kill_at_random(tmp_path, "killed", 1, times=6, seed=1)
    assert killed["parent"] >= 3, "the run was too short to be killed"
    finish(tmp_path, "killed", 1)
    check_exact_counts(tmp_path, "whole")
    check_exact_counts(tmp_path, "killed")
    assert search_history(tmp_path, "killed") == search_history(tmp_path, "whole")
    for file in ("results.csv", "baselines.csv"):
        whole = (tmp_path / "whole" / file).read_bytes()
        assert (tmp_path / "killed" / file).read_bytes() == whole


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers")
def test_several_workers_killed_at_random_end_with_exact_counts(tmp_path: Path) -> None:
    prepare(tmp_path)
    kill_at_random(tmp_path, "killed", 2, times=5, seed=2)
    finish(tmp_path, "killed", 2)
    check_exact_counts(tmp_path, "killed")
