"""The supervisor of jobs, with a scheduler that says what it is told to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.slurm_jobs import jobs_of

from reality_check.launch.jobs import MAX_LOST_JOBS, JobWorkers
from reality_check.launch.local import read_failure, write_failure
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.exit_status import FAILED, STOPPED


class Told:
    """A scheduler; a job whose state is not given runs."""

    job, folder, refusal = "SLURM job", "slurm", "wrong token"

    def __init__(self, **states: str) -> None:
        self.known: dict[str, str] | None = states
        self.submitted = 0
        self.ended: list[str] = []

    def submit(self, numbers: Sequence[int]) -> Iterator[str]:
        for _ in numbers:
            self.submitted += 1
            yield f"j{self.submitted}"

    def states(self, jobs: Sequence[str]) -> dict[str, str] | None:
        if self.known is None:
            return None
        return {job: self.known.get(job, "RUNNING") for job in jobs}

    def end(self, jobs: Iterable[str], only_waiting: bool = False) -> None:
        self.ended += [job for job in jobs if not only_waiting]


class Watched(JobWorkers):
    """Two workers; ``complete`` says whether their work is done, ``told`` has what was logged."""

    def __init__(self, out: Path, scheduler: Told, workers: int = 2) -> None:
        self.complete, self.told = False, list[str]()
        made = SimpleNamespace(is_complete=lambda: self.complete)
        members = [cast(RecordedExperiment, made)]
        (out / "logs").mkdir(exist_ok=True)
        super().__init__(members, out, workers, scheduler, self.told.append)


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "GONE"]
)
def test_a_job_that_the_scheduler_ended_is_replaced(state: str, tmp_path: Path) -> None:
    workers = Watched(tmp_path, Told(j2=state))
    assert not workers._poll()
    assert jobs_of(tmp_path) == ["j1", "j3"]
    lost = f"SLURM job j2 was lost ({state.lower()})"
    assert workers.told == ["SLURM jobs submitted: j1, j2", lost, "SLURM jobs submitted: j3"]
    assert not workers._poll()
    assert len(workers.told) == 3


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED"])
def test_a_job_that_somebody_ended_or_that_is_done_is_not_replaced(
    state: str, tmp_path: Path
) -> None:
    workers = Watched(tmp_path, Told(j2=state))
    assert not workers._poll()
    assert workers.jobs == {0: "j1"}
    assert workers.told[1:] == [f"SLURM job j2: {state.lower()}"]


def test_a_scheduler_that_only_knows_that_a_job_is_gone_replaces_none_at_the_end(
    tmp_path: Path,
) -> None:
    scheduler = Told(j1="GONE", j2="GONE")
    workers = Watched(tmp_path, scheduler)
    answers = iter([False, True, True])  # the last trial ended between the two questions
    workers._is_complete = lambda: next(answers)  # type: ignore[method-assign]
    assert not workers._poll()
    assert scheduler.submitted == 2


def test_lost_jobs_are_counted_and_those_asked_to_stop_are_not(tmp_path: Path) -> None:
    scheduler = Told()
    workers = Watched(tmp_path, scheduler, 1)
    for _ in range(3 * MAX_LOST_JOBS):
        write_failure(tmp_path, 0, STOPPED, "asked to stop")
        scheduler.known = {workers.jobs[0]: "GONE"}
        assert not workers._poll()
    assert scheduler.submitted == 1 + 3 * MAX_LOST_JOBS
    assert workers.told[1] == "SLURM job j1 was asked to stop"
    for _ in range(MAX_LOST_JOBS):
        scheduler.known = {workers.jobs[0]: "GONE"}
        assert not workers._poll()
    scheduler.known = {workers.jobs[0]: "GONE"}
    with pytest.raises(WorkFailed, match="6 SLURM jobs were lost, the last one as GONE"):
        workers._poll()


def test_a_failed_training_ends_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reality_check.launch.jobs.POLL_SECONDS", 0.0)
    scheduler = Told()
    workers = Watched(tmp_path, scheduler)
    write_failure(tmp_path, 1, FAILED, "OSError: no table")
    with pytest.raises(WorkFailed, match="no table"):
        workers.wait(lambda: None)
    assert scheduler.ended == ["j1", "j2"]


def test_jobs_that_are_ending_are_replaced_and_earlier_failures_forgotten(tmp_path: Path) -> None:
    """The same command again, seconds after it said why the first worker had failed."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "slurm.json").write_text(json.dumps({0: "7_0", 1: "7_1", 2: "7_2"}))
    for number in range(3):
        write_failure(tmp_path, number, FAILED, "OSError: no table")
    states: dict[str, Any] = {"7_0": "COMPLETING", "7_1": "RUNNING", "7_2": "FAILED"}
    scheduler = Told(**states)
    workers = Watched(tmp_path, scheduler, 3)
    assert workers.jobs == {0: "j1", 1: "7_1", 2: "j2"}
    assert scheduler.ended == ["7_0"], "it may have asked to be queued again"
    assert workers.told == ["SLURM jobs that keep running: 7_1", "SLURM jobs submitted: j1, j2"]
    assert not workers._poll()
    assert [read_failure(tmp_path, number) for number in range(3)] == [None] * 3


def test_nothing_is_submitted_or_lost_while_the_scheduler_does_not_answer(tmp_path: Path) -> None:
    scheduler = Told()
    workers = Watched(tmp_path, scheduler)
    scheduler.known = None
    assert not workers._poll()
    assert not workers._poll()
    silent = "the scheduler does not answer (wrong token)"
    assert workers.told[1:] == [f"{silent}; the jobs run without it"]
    with pytest.raises(
        UsageError, match=rf"{re.escape(silent)}, .*\(j1, j2\) still run; try again"
    ):
        Watched(tmp_path, scheduler)
    assert scheduler.submitted == 2
