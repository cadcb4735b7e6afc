"""Workers on two pretended nodes of a real SLURM, with a partition that pre-empts the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import slurm_jobs
from support.prepared import logs
from support.slurm_jobs import Scores, all_trials, jobs_of, progress, scores

from reality_check.api import run
from reality_check.config import Experiment
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.passwords import PASSWORD_VARIABLE, split_password

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.usefixtures("blank_figures", "forked_jobs"),
]
AWAY = "the storage does not answer"


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    """The tiny experiment with fold runs that last some seconds, for the two nodes."""
    return slurm_jobs.experiment(partition="spread")


class InTurn:
    """Does one thing after the other, while workers are watched: as soon as worker 0 trains.

    After each it waits until another process is worker 0.
    """

    def __init__(self, out: Path, actions: Sequence[Callable[[], Any]]) -> None:
        self.out, self.left = out, list(actions)
        self._seen: set[int] = set()

    def __call__(self, recorded: RecordedExperiment) -> None:
        state = progress(self.out, 0)
        if not self.left or state.get("epoch", 0) <= 2:
            return
        pid = state["worker"]["pid"]
        if pid not in self._seen:
            self._seen.add(pid)
            self.left.pop(0)()


def kill(out: Path) -> None:
    """End worker 0 as the kernel does when memory is short."""
    os.kill(progress(out, 0)["worker"]["pid"], signal.SIGKILL)


def test_one_worker_interrupted_in_every_way(
    slurm: Any, experiment: Experiment, tmp_path: Path, alone: Scores
) -> None:
    """Its time is nearly over, it is pre-empted, and it is killed as for lack of memory."""
    out, told = tmp_path / "out", []

    def notice() -> None:
        slurm.ask("scancel", "--signal=USR2", jobs_of(out)[0])

    def preempt() -> None:
        # One that needs both nodes.
        slurm.ask("sbatch", "-p", "urgent", "-N", "2", "-o", "/dev/null", "--wrap", "sleep 1")

    steps = InTurn(out, [notice, preempt, lambda: kill(out)])
    results = run(
        experiment, out, Parallelism(1, 1, launcher="slurm"), watch=steps, log=told.append
    )
    assert steps.left == []
    assert scores(results) == alone
    first, second = (text.rpartition(" ")[2] for text in told if "submitted" in text)
    assert f"SLURM job {first} was lost (failed)" in told
    assert len(told) == 3, "twice the same job went on"
    log = (out / "logs" / "worker_0.log").read_text()
    assert log.count(f"SLURM job {first} on") == 3
    assert log.count(f"SLURM job {second} on") == 1
    assert log.count(f"job {first} asks to be requeued") == 2
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert sum(trial.stopped for trial in failed) == 2
    assert sum(trial.was_abandoned for trial in failed) == 1


@pytest.mark.postgres
def test_folds_at_once_while_a_job_is_killed_and_the_server_restarts(
    slurm: Any,
    postgres: Any,
    experiment: Experiment,
    tmp_path: Path,
    alone: Scores,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, told, array = tmp_path / "out", [], []
    made = experiment.model_copy(update={"storage": postgres.url()})

    def kill_and_restart() -> None:
        array.extend(jobs_of(out))
        kill(out)
        postgres.stop()
        slurm.wait_until(lambda: AWAY in logs(out))  # else it is back before anybody has noticed
        postgres.start()

    steps = InTurn(out, [kill_and_restart])
    tell = told.append
    results = run(made, out, Parallelism(2, 2, launcher="slurm"), watch=steps, log=tell)
    assert steps.left == []
    assert scores(results) == alone
    assert told[0] == f"SLURM jobs submitted: {', '.join(array)}"
    nodes = slurm.ask("sacct", "-X", "-n", "-P", "-o", "NodeList", "-j", ",".join(array))
    assert sorted(nodes.split()) == ["one", "two"]
    assert [text for text in told if "was lost (failed)" in text]
    monkeypatch.setenv(PASSWORD_VARIABLE, split_password(postgres.url())[1] or "")
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert sum(trial.was_abandoned for trial in failed) == 1
    assert "the storage answers after" in logs(out)
