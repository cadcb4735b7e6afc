"""Workers as jobs of any scheduler: here of shell scripts, with a queue of files."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support import fake_scheduler
from support.pace import wait_until
from support.slurm_jobs import experiment

from reality_check.api import run
from reality_check.config.command import Command
from reality_check.launch import worker
from reality_check.launch.command import CommandScheduler
from reality_check.launch.jobs import JobWorkers
from reality_check.launch.local import has_stopped
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils import interrupt
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import STOPPED, USAGE

#: In place of a worker: it works until there is a file, and records that it was asked to stop.
WORKER = r"""
echo begins >> "$1/began_$2"
trap 'echo "{\"status\": 75, \"message\": \"\"}" > "$1/logs/worker_$2.failure.json"; exit 75' TERM
while [ ! -e "$1/done" ]; do sleep 0.05; done
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "it's out"  # which a shell would take apart
    (folder / "logs").mkdir(parents=True)
    return folder


@pytest.fixture
def block(tmp_path: Path) -> dict[str, str]:
    return fake_scheduler.install(tmp_path / "a queue")


def scheduler(block: dict[str, str], out: Path) -> CommandScheduler:
    return CommandScheduler(Command(**block), "tiny", out, 2)


def test_a_job_from_its_submission_to_its_end(block: dict[str, str], out: Path) -> None:
    block["submit"] = block["submit"].replace(
        "{command}", "sh -c 'echo begins; exec sleep 100' {worker}"
    )
    queue = scheduler(block, out)
    (out.parent / "a queue" / "hold").touch()
    first, second = queue.submit([0, 1])
    assert (first, second) == ("1", "2")
    assert queue.states(["1", "2", "7"]) == {"1": "PENDING", "2": "PENDING", "7": "GONE"}
    (out.parent / "a queue" / "hold").unlink()
    wait_until(lambda: set((queue.states(["1", "2"]) or {}).values()) == {"RUNNING"}, 20)
    queue.end(["1", "2"], only_waiting=True)
    assert queue.states(["1", "2"]) == {"1": "RUNNING", "2": "RUNNING"}
    queue.end(["1", "2"])
    wait_until(lambda: set((queue.states(["1", "2"]) or {}).values()) == {"GONE"}, 20)
    assert (out / "logs" / "jobs" / "worker_1.log").read_text() == "begins\n"


def test_a_command_that_fails_says_that_a_job_is_gone_only_without_a_pattern(
    block: dict[str, str], out: Path
) -> None:
    (out.parent / "a queue" / "away").touch()
    queue = scheduler(block, out)
    assert queue.states(["1"]) is None
    assert queue.refusal == "nobody answers"
    del block["gone"]
    assert scheduler(block, out).states(["1"]) == {"1": "GONE"}


def test_the_command_of_a_worker_reaches_a_shell_as_it_is(block: dict[str, str], out: Path) -> None:
    block["submit"] = "printf '%s\\n' {command} > {folder}/words; echo {worker} {name}; echo 12"
    del block["number"]
    assert list(scheduler(block, out).submit([3])) == ["12"], "the last word"
    words = (out / "words").read_text().splitlines()
    assert words[words.index("worker") :] == [
        *("worker", str(out), "--number", "3", "--folds-at-once", "2"),
    ]
    assert {"env", "OMP_NUM_THREADS=1", "-m", "reality_check"} < {*words}


@pytest.mark.parametrize(
    ("submit", "text"),
    [
        ("echo {worker} >&2; echo no queue >&2; exit 3", "command.submit has failed: no queue"),
        ("echo submitted {worker}", "command.submit printed no number of a job: submitted 0"),
    ],
)
def test_what_the_scheduler_refuses_is_said(
    block: dict[str, str], out: Path, submit: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        list(scheduler(block | {"submit": submit}, out).submit([0]))


def test_workers_are_replaced_until_the_work_is_done_and_found_by_the_next_command(
    block: dict[str, str], out: Path
) -> None:
    queue = out.parent / "a queue"
    (queue / "worker.sh").write_text(WORKER)
    words = f"sh {shlex.quote(str(queue / 'worker.sh'))} {{folder}} {{worker}}"
    block["submit"] = block["submit"].replace("{command}", words)
    told: list[str] = []
    made = SimpleNamespace(is_complete=(out / "done").exists)

    def watch() -> JobWorkers:
        members = [cast(RecordedExperiment, made)]
        return JobWorkers(members, out, 2, scheduler(block, out), told.append)

    def begun(number: int, times: int) -> Callable[[], bool]:
        file = out / f"began_{number}"
        return lambda: file.exists() and file.read_text().count("begins") == times

    workers = watch()
    wait_until(lambda: begun(0, 1)() and begun(1, 1)(), 20)
    os.kill(int((queue / "1" / "pid").read_text()), signal.SIGKILL)
    wait_until((queue / "1" / "ended").exists, 20)
    assert not workers._poll()
    os.kill(int((queue / "2" / "pid").read_text()), signal.SIGTERM)
    wait_until((queue / "2" / "ended").exists, 20)
    (queue / "away").touch()
    assert not workers._poll()
    (queue / "away").unlink()
    assert not workers._poll()
    lost, stopped = "job 1 was lost (gone)", "job 2 was asked to stop"
    submitted = [f"jobs submitted: {jobs}" for jobs in ("1, 2", "3", "4")]
    silent = "the scheduler does not answer (nobody answers); the jobs run without it"
    assert told == [submitted[0], lost, submitted[1], silent, stopped, submitted[2]]
    wait_until(lambda: begun(0, 2)() and begun(1, 2)(), 20)
    assert json.loads((out / "jobs.json").read_text()) == {"0": "3", "1": "4"}
    assert watch().jobs == {0: "3", 1: "4"}
    assert told[6:] == ["jobs that keep running: 3, 4"]
    (out / "done").touch()
    assert workers._poll()
    wait_until(lambda: all((queue / job / "ended").exists() for job in "34"), 20)


def test_a_run_without_the_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the commands of the scheduler"):
        run(experiment(), tmp_path / "out", Parallelism(launcher="command"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_each_signal_asks_a_worker_to_stop_which_it_records(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*arguments: Any, **options: Any) -> int:
        signal.raise_signal(number)
        assert interrupt.requested()
        return STOPPED

    monkeypatch.setattr(worker, "work", work)
    monkeypatch.setattr(worker, "redirect_output_to", lambda log: log.parent.mkdir())
    try:
        assert worker.join(tmp_path, number=3) == STOPPED
    finally:
        interrupt._requested.clear()
    assert has_stopped(tmp_path, 3)
    monkeypatch.setattr(worker, "redirect_output_to", lambda log: None)
    monkeypatch.setattr(worker, "work", lambda *arguments, **options: USAGE)
    assert worker.join(tmp_path, number=3) == USAGE
    assert not has_stopped(tmp_path, 3), "the job was started again"
