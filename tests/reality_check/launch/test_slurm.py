"""Workers as SLURM jobs, as far as it can be told without SLURM."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.slurm_jobs import experiment, jobs

from reality_check.api import run
from reality_check.config.slurm import Slurm
from reality_check.launch import slurm as launcher
from reality_check.launch import slurm_queue as queue
from reality_check.launch import worker
from reality_check.launch.parallelism import Parallelism
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import STOPPED


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
    monkeypatch.setattr(launcher, "redirect_output_to", lambda log: None)
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
