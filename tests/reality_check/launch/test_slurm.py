"""Workers as SLURM jobs, as far as it can be told without SLURM."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.slurm_jobs import experiment, jobs, jobs_of

from reality_check.api import run
from reality_check.config.slurm import Slurm
from reality_check.launch import slurm as launcher
from reality_check.launch import slurm_queue as queue
from reality_check.launch import worker
from reality_check.launch.local import read_failure, write_failure
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import FAILED, STOPPED


def test_without_slurm_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no SLURM here|needs submitit"):
        run(experiment(), tmp_path / "out", jobs(1))
    with pytest.raises(UsageError, match="local launcher only"):
        run(experiment(), tmp_path / "out", Parallelism(processes_per_network=2, launcher="slurm"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"memory": "16"}, "a number with its unit"),
        ({"extra": {"--nice": 5}}, "write 'nice' without the dashes"),
        ({"extra": {"time": 5}}, "the launcher itself does"),
        ({"hours": 0.02, "notice_seconds": 60}, "must be less than the time limit of 60 seconds"),
    ],
)
def test_blocks_that_cannot_work(block: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Slurm(**block)


def test_the_block_may_change_between_runs(tmp_path: Path) -> None:
    from reality_check.studies.output_folder import check_same_experiment, lock_experiment

    made = experiment().model_copy(update={"code": {"dataset": "same"}})
    lock_experiment(made, tmp_path)
    changed = made.model_copy(update={"slurm": Slurm(hours=3, partition="long")})
    assert check_same_experiment(changed, tmp_path)


@pytest.fixture
def watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[launcher.SlurmWorkers, list[str]]]:
    """A function that watches two jobs of which SLURM says what it is given."""

    def watch(**states: str) -> tuple[launcher.SlurmWorkers, list[str]]:
        names = iter(["1_0", "1_1", "2_0"])
        made = SimpleNamespace(experiment=experiment(), is_complete=lambda: False)
        members = [cast(RecordedExperiment, made)]
        told: list[str] = []
        monkeypatch.setattr(launcher, "submit", lambda _, __, new, ___: [next(names) for _ in new])
        answer = {"1_0": "RUNNING", "1_1": "RUNNING", "2_0": "PENDING", **states}
        monkeypatch.setattr(launcher, "job_states", lambda jobs: {job: answer[job] for job in jobs})
        return launcher.SlurmWorkers(members, tmp_path, jobs(2), told.append), told

    return watch


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "GONE"]
)
def test_a_job_that_slurm_ended_is_replaced(watching: Any, state: str, tmp_path: Path) -> None:
    workers, told = watching(**{"1_1": state})
    assert not workers._poll()
    assert jobs_of(tmp_path) == ["1_0", "2_0"]
    lost = f"SLURM job 1_1 was lost ({state.lower()})"
    assert told == ["SLURM jobs submitted: 1_0, 1_1", lost, "SLURM jobs submitted: 2_0"]
    assert not workers._poll()
    assert len(told) == 3


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED"])
def test_a_job_that_somebody_ended_or_that_is_done_is_not_replaced(
    watching: Any, state: str
) -> None:
    workers, told = watching(**{"1_1": state})
    assert not workers._poll()
    assert workers.jobs == {0: "1_0"}
    assert told[1:] == [f"SLURM job 1_1: {state.lower()}"]


def test_jobs_that_are_ending_are_replaced_and_earlier_failures_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again, seconds after it said why the first worker had failed."""
    states = {"7_0": "COMPLETING", "7_1": "RUNNING", "7_2": "FAILED"}
    (tmp_path / "logs").mkdir()
    (tmp_path / "slurm.json").write_text(json.dumps(dict(enumerate(states))))
    for number in range(3):
        write_failure(tmp_path, number, FAILED, "OSError: no table")
    cancelled: list[str] = []
    monkeypatch.setattr(launcher, "states_or_complain", lambda jobs: states)
    monkeypatch.setattr(launcher, "cancel", lambda jobs: cancelled.extend(jobs))
    monkeypatch.setattr(launcher, "submit", lambda _, __, new, ___: [f"8_{n}" for n in new])
    monkeypatch.setattr(launcher, "job_states", lambda jobs: dict.fromkeys(jobs, "RUNNING"))
    made = SimpleNamespace(experiment=experiment(), is_complete=lambda: False)
    told: list[str] = []
    members = [cast(RecordedExperiment, made)]
    workers = launcher.SlurmWorkers(members, tmp_path, jobs(3), told.append)
    assert workers.jobs == {0: "8_0", 1: "7_1", 2: "8_2"}
    assert cancelled == ["7_0"], "it may have asked to be queued again"
    assert told == ["SLURM jobs that keep running: 7_1", "SLURM jobs submitted: 8_0, 8_2"]
    assert not workers._poll()
    assert [read_failure(tmp_path, number) for number in range(3)] == [None] * 3


@pytest.mark.parametrize(
    ("state", "asks"),
    [("RUNNING", True), ("COMPLETING", False), ("CANCELLED", False), (None, False)],
)
def test_a_job_asked_to_stop_asks_to_be_queued_again_unless_it_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None, asks: bool
) -> None:
    """SIGTERM comes before pre-emption, and also when somebody cancels the job."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    monkeypatch.setattr(worker, "work", lambda *arguments: STOPPED)
    monkeypatch.setattr(launcher, "_redirect_output_to", lambda log: None)
    monkeypatch.setattr(launcher.stopping, "listen", lambda *signals: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(launcher, "job_states", lambda jobs: state and dict.fromkeys(jobs, state))
    called: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **options: called.append(command))
    with pytest.raises(SystemExit) as ended:
        launcher.start_worker(str(tmp_path), 0, 1)
    assert ended.value.code == STOPPED
    assert called == [["scontrol", "requeue", "7"]] * asks


def test_states_as_squeue_and_sacct_write_them() -> None:
    lines = "12_0|RUNNING\n12_1|CANCELLED by 0\n12_2|COMPLETED+\n\n13|TIMEOUT\n"
    assert queue._parse(lines) == {
        "12_0": "RUNNING",
        "12_1": "CANCELLED",
        "12_2": "COMPLETED",
        "13": "TIMEOUT",
    }


def test_without_a_gpu_none_is_asked_for() -> None:
    options = launcher.job_parameters(Slurm(), "tiny", "cpu")["additional_parameters"]
    assert options == {"requeue": True}
    options = launcher.job_parameters(Slurm(), "tiny", "auto")["additional_parameters"]
    assert options["gres"] == "gpu:1"
