"""A worker that joins: what its machine lacks is its own trouble, not the experiment's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from support.paths import DOCS
from support.prepared import prepare

from reality_check.config import load_experiment
from reality_check.data import residency
from reality_check.launch import work_loop, worker
from reality_check.launch.worker import work
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.plan import States
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils import interrupt as stopping
from reality_check.utils.exit_status import DONE, FAILED, STOPPED, USAGE


@pytest.fixture
def begun(tiny: Path, tmp_path: Path) -> Path:
    """The output folder of a run that was stopped before its first trial."""
    prepare(load_experiment(tiny), tmp_path / "out")
    (tmp_path / "out" / "logs").mkdir()
    return tmp_path / "out"


def test_what_a_machine_lacks_does_not_stop_the_others(
    begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = load_experiment(begun / "experiment.yaml")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    lock_experiment(here.model_copy(update={"device": "cuda"}), begun)
    assert work(begun, 5) == USAGE
    assert "device 'cuda' is not here" in capsys.readouterr().err
    missing = f"dataset={{reader: tensors, name: blobs, path: {begun}/nowhere.npz}}"
    lock_experiment(load_experiment(begun / "experiment.yaml", [missing, "device=cpu"]), begun)
    assert work(begun, 5) == USAGE
    assert "nowhere.npz" in capsys.readouterr().err
    recorded = RecordedExperiment(here, begun)
    assert not any(unit.failure or unit.attempts for unit in recorded.states().ready())


def test_a_worker_of_a_complete_experiment_needs_nothing(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = load_experiment(begun / "experiment.yaml")
    lock_experiment(here.model_copy(update={"device": "cuda"}), begun)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(States, "is_complete", lambda self: True)
    monkeypatch.setattr(work_loop, "next_units", lambda states: iter(()))
    assert work(begun, 5) == DONE


@pytest.mark.parametrize(("folds", "expected"), [(1, 2), (4, 10)])
def test_all_processes_that_upload_samples_are_counted(
    begun: Path, monkeypatch: pytest.MonkeyPatch, folds: int, expected: int
) -> None:
    """Of two workers on one GPU, each of which scores and trains folds in other processes."""
    monkeypatch.setattr(residency, "_process_count", 1)
    monkeypatch.setenv(residency.WORKERS_ON_GPU, "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    here = load_experiment(begun / "experiment.yaml")
    lock_experiment(here.model_copy(update={"device": "cuda"}), begun)
    assert work(begun, 5, folds) == USAGE, "no device here"
    assert residency.processes_on_gpu() == expected


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, os.getpid()),
        ({"SLURM_JOB_ID": "77"}, 77),
        ({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0"}, 77),
        ({"SLURM_JOB_ID": "77", "SLURM_PROCID": "1"}, os.getpid()),
    ],
    ids=["no job", "job", "first of a job", "second of a job"],
)
def test_a_worker_by_hand_is_named_by_its_job_and_can_be_asked_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], number: int
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stopping, "_requested", threading.Event())
    seen: list[tuple[int, int, bool]] = []

    def be_stopped(out: Path, own: int, folds_at_once: int, storage: str | None) -> int:
        signal.raise_signal(signal.SIGTERM)
        seen.append((own, folds_at_once, stopping.requested()))
        return STOPPED

    monkeypatch.setattr(worker, "work", be_stopped)
    before = signal.getsignal(signal.SIGTERM)
    assert worker.join(tmp_path, 4) == STOPPED
    assert seen == [(number, 4, True)]
    assert signal.getsignal(signal.SIGTERM) == before
    assert stopping.listening() == ()


def test_a_process_of_a_team_that_failed_does_not_wait_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(sys, "argv", ["worker", str(tmp_path)])
    monkeypatch.setattr(worker, "die_with_parent", lambda *parent: None)
    monkeypatch.setattr(worker, "work", lambda *how: FAILED)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(os, "_exit", ended.append)
    worker.main()
    assert ended == [FAILED]


PAGE = DOCS / "cluster.md"


@pytest.mark.parametrize("status", [DONE, FAILED, STOPPED])
def test_the_job_script_of_the_docs_ends_as_its_worker_did(tmp_path: Path, status: int) -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/bash.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    for name, line in (("srun", f"exit {status}"), ("scontrol", 'echo "$*"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "SLURM_JOB_ID": "77"}
    command = ["bash", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout == ("requeue 77\n" if status == STOPPED else "")
