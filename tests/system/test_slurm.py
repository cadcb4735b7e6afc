"""Workers as SLURM jobs, on a real SLURM of one machine with pretended GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.slurm_jobs import TRIALS, experiment, jobs, jobs_of, plain

from reality_check.api import run
from reality_check.config import compose
from reality_check.results import ExperimentResults
from reality_check.studies.campaign import Campaign
from reality_check.studies.output_folder import load_locked
from reality_check.utils.errors import UsageError

needs_slurm = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


def scores(results: ExperimentResults) -> list[tuple[Any, ...]]:
    return sorted((r.category, r.reproduction, r.metric, r.value) for r in results.rows)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResults:
    """What one worker that nobody disturbs finds."""
    return run(experiment(), tmp_path_factory.mktemp("alone") / "out")


def search_trials(out: Path) -> list[Any]:
    campaign = Campaign(load_locked(out), out)
    (search,) = [unit.study for unit in campaign.ready_stages() if unit.stage == "search"]
    assert len(search.complete()) == TRIALS
    trials = search.trials()
    assert sum(trial.state == "complete" for trial in trials) == TRIALS
    return trials


def progress(out: Path, number: int) -> dict[str, Any]:
    """What a worker said last."""
    try:
        state: dict[str, Any] = json.loads((out / "logs" / f"worker_{number}.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


def trains(out: Path, number: int) -> bool:
    """Whether a worker is in the middle of a fold run."""
    return bool(progress(out, number).get("epoch", 0) > 2)


def command(folder: Path, *more: str) -> subprocess.Popen[str]:
    # Long enough for a second command to find the jobs of the first.
    (folder / "tiny.yaml").write_text(yaml.safe_dump(plain(epochs=150)))
    start = [sys.executable, "-m", "reality_check", "run", "tiny.yaml", "--out", "out"]
    return subprocess.Popen(
        [*start, "--launcher", "slurm", *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Once:
    """Does something once, while workers are watched, as soon as worker 0 trains."""

    def __init__(self, out: Path, action: Callable[[], Any]) -> None:
        self.out, self.action = out, action
        self.done = False

    def __call__(self, campaign: Campaign) -> None:
        if not self.done and trains(self.out, 0):
            self.action()
            self.done = True


class TestArray:
    pytestmark = needs_slurm

    def test_two_workers_share_the_work(
        self, slurm: Any, tmp_path: Path, alone: ExperimentResults
    ) -> None:
        out, told = tmp_path / "out", []
        results = run(experiment(), out, jobs(2), log=told.append)
        assert scores(results) == scores(alone)
        search_trials(out)
        one, two = jobs_of(out)
        assert told == [f"SLURM jobs submitted: {one}, {two}"]
        assert one.partition("_")[0] == two.partition("_")[0]
        for number, job in enumerate((one, two)):
            assert f"SLURM job {job} on" in (out / "logs" / f"worker_{number}.log").read_text()

    def test_a_killed_worker_is_replaced(
        self, slurm: Any, tmp_path: Path, alone: ExperimentResults
    ) -> None:
        """As the kernel does when memory is short."""
        out, told = tmp_path / "out", []
        kill = Once(out, lambda: os.kill(progress(out, 0)["worker"]["pid"], signal.SIGKILL))
        # Alone, so that nobody else can do its work.
        results = run(experiment(), out, jobs(1), watch=kill, log=told.append)
        assert kill.done
        assert scores(results) == scores(alone)
        assert len(search_trials(out)) > TRIALS
        assert any("was lost (failed)" in text for text in told), told
        assert len([text for text in told if "submitted" in text]) == 2

    def test_a_cancelled_job_is_not_replaced(
        self, slurm: Any, tmp_path: Path, alone: ExperimentResults
    ) -> None:
        out, told = tmp_path / "out", []
        cancel = Once(out, lambda: slurm.ask("scancel", "--signal=KILL", jobs_of(out)[0]))
        results = run(experiment(), out, jobs(2), watch=cancel, log=told.append)
        assert cancel.done
        assert scores(results) == scores(alone)
        assert len(search_trials(out)) > TRIALS
        assert len([text for text in told if "submitted" in text]) == 1

    def test_a_job_near_its_time_limit_is_queued_again(
        self, slurm: Any, tmp_path: Path, alone: ExperimentResults
    ) -> None:
        out, told = tmp_path / "out", []
        notice = Once(out, lambda: slurm.ask("scancel", "--signal=USR2", jobs_of(out)[0]))
        results = run(experiment(), out, jobs(1), watch=notice, log=told.append)
        assert notice.done
        assert scores(results) == scores(alone)
        log = (out / "logs" / "worker_0.log").read_text()
        assert log.count(f"SLURM job {jobs_of(out)[0]} on") == 2
        assert "asks to be queued again" in log
        assert len(told) == 1, "the same job went on"
        assert [t for t in search_trials(out) if t.stopped]

    @pytest.mark.skipif(
        "REALITY_CHECK_LONG_TESTS" not in os.environ,
        reason="waits for real time limits of minutes; set REALITY_CHECK_LONG_TESTS=1",
    )
    def test_a_real_time_limit(self, slurm: Any, tmp_path: Path) -> None:
        """SLURM may send the notice a minute early: not while the worker still starts."""
        made = compose(plain(epochs=400, hours=1 / 30, notice_seconds=35))
        out, told = tmp_path / "out", []
        run(made, out, jobs(1), log=told.append)
        assert any(trial.stopped for trial in search_trials(out))
        assert "asks to be queued again" in (out / "logs" / "worker_0.log").read_text()

    def test_whoever_watches_the_jobs_keep_running(self, slurm: Any, tmp_path: Path) -> None:
        """Ctrl-C, the same command, a cancelled array, and the same command again."""
        out = tmp_path / "out"
        first = command(tmp_path, "--workers", "2")
        slurm.wait_until(lambda: trains(out, 0))
        for job in jobs_of(out):  # however long the commands take to start on a busy machine
            slurm.ask("scontrol", "suspend", job)
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate(timeout=600)
        assert first.returncode == 130, said
        assert "SLURM jobs keep running" in said
        before = jobs_of(out)
        assert len(slurm.ask("squeue", "-h", "-r").splitlines()) == 2

        second = command(tmp_path, "--workers", "2")
        assert second.stdout is not None
        lines = []
        while "keep running" not in (line := second.stdout.readline()):
            assert line, lines
            lines.append(line)
        assert all(job in line for job in before)
        assert jobs_of(out) == before
        slurm.ask("scancel", *before)
        said, _ = second.communicate(timeout=600)
        assert second.returncode == 1, said
        assert "all jobs have ended (cancelled" in said

        third = command(tmp_path, "--workers", "2")
        said, _ = third.communicate(timeout=600)
        assert third.returncode == 0, said
        assert not set(jobs_of(out)) & set(before)
        search_trials(out)

    def test_what_slurm_refuses_is_said(self, slurm: Any, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"SLURM refuses the job: .*partition"):
            run(experiment(partition="nowhere"), tmp_path / "out", jobs(1))
