"""Workers as SLURM jobs, on a real SLURM of one machine with pretended GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from support.paths import TINY

from reality_check.api import run
from reality_check.config import Experiment, compose
from reality_check.config.layers import merge
from reality_check.config.slurm import Slurm
from reality_check.config.yaml_text import read_yaml
from reality_check.launch import slurm as launcher
from reality_check.launch import slurm_queue as queue
from reality_check.launch import worker
from reality_check.launch.local import read_failure, write_failure
from reality_check.launch.parallelism import Parallelism
from reality_check.results import ExperimentResults
from reality_check.studies.campaign import Campaign
from reality_check.studies.output_folder import load_locked
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import FAILED, STOPPED

needs_slurm = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]
TRIALS = 4


def plain(epochs: int = 40, **slurm: Any) -> dict[str, Any]:
    """The tiny experiment with fold runs that last some seconds."""
    training = {"max_epochs": epochs, "patience": None}
    changes = {
        "protocol": {
            "training": training,
            "search": {"trials": TRIALS},
            "categories": ["aggregate", "ensemble"],
        },
        "slurm": {"hours": 0.5, "gpus": 1, "cpus": 1, "memory": "200M", **slurm},
    }
    return merge(read_yaml(TINY), changes)


def experiment(**slurm: Any) -> Experiment:
    return compose(plain(**slurm))


def scores(results: ExperimentResults) -> list[tuple[Any, ...]]:
    return sorted((r.category, r.reproduction, r.metric, r.value) for r in results.rows)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResults:
    """What one worker that nobody disturbs finds."""
    return run(experiment(), tmp_path_factory.mktemp("alone") / "out")


def jobs(count: int) -> Parallelism:
    return Parallelism(count, launcher="slurm")


def search_trials(out: Path) -> list[Any]:
    campaign = Campaign(load_locked(out), out)
    (search,) = [unit.study for unit in campaign.ready_stages() if unit.stage == "search"]
    assert len(search.complete()) == TRIALS
    trials = search.trials()
    assert sum(trial.state == "complete" for trial in trials) == TRIALS
    return trials


def jobs_of(out: Path) -> list[str]:
    try:
        return list(json.loads((out / "slurm.json").read_text()).values())
    except OSError:
        return []


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

    def test_whoever_watches_the_jobs_go_on(self, slurm: Any, tmp_path: Path) -> None:
        """Ctrl-C, the same command, a cancelled array, and the same command again."""
        out = tmp_path / "out"
        first = command(tmp_path, "--workers", "2")
        slurm.wait_until(lambda: trains(out, 0))
        for job in jobs_of(out):  # however long the commands take to start on a busy machine
            slurm.ask("scontrol", "suspend", job)
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate(timeout=600)
        assert first.returncode == 130, said
        assert "jobs of SLURM go on" in said
        before = jobs_of(out)
        assert len(slurm.ask("squeue", "-h", "-r").splitlines()) == 2

        second = command(tmp_path, "--workers", "2")
        assert second.stdout is not None
        lines = []
        while "go on" not in (line := second.stdout.readline()):
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


# -- without SLURM -----------------------------------------------------------------------------


def test_without_slurm_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no SLURM here|needs submitit"):
        run(experiment(), tmp_path / "out", jobs(1))
    with pytest.raises(UsageError, match="local launcher only"):
        run(experiment(), tmp_path / "out", processes_per_network=2, launcher="slurm")
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
        made = experiment()
        campaign = SimpleNamespace(out_dir=tmp_path, experiment=made, is_complete=lambda: False)
        told: list[str] = []
        monkeypatch.setattr(launcher, "submit", lambda _, new, __: [next(names) for _ in new])
        answer = {"1_0": "RUNNING", "1_1": "RUNNING", "2_0": "PENDING", **states}
        monkeypatch.setattr(launcher, "job_states", lambda jobs: {job: answer[job] for job in jobs})
        return launcher.SlurmWorkers(cast(Campaign, campaign), jobs(2), told.append), told

    return watch


@pytest.mark.parametrize(
    "state", ["TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "GONE"]
)
def test_a_job_that_slurm_ended_is_replaced(watching: Any, state: str, tmp_path: Path) -> None:
    workers, told = watching(**{"1_1": state})
    assert not workers._look()
    assert jobs_of(tmp_path) == ["1_0", "2_0"]
    lost = f"SLURM job 1_1 was lost ({state.lower()})"
    assert told == ["SLURM jobs submitted: 1_0, 1_1", lost, "SLURM jobs submitted: 2_0"]
    assert not workers._look()
    assert len(told) == 3


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED"])
def test_a_job_that_somebody_ended_or_that_is_done_is_not_replaced(
    watching: Any, state: str
) -> None:
    workers, told = watching(**{"1_1": state})
    assert not workers._look()
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
    monkeypatch.setattr(launcher, "submit", lambda _, new, __: [f"8_{n}" for n in new])
    monkeypatch.setattr(launcher, "job_states", lambda jobs: dict.fromkeys(jobs, "RUNNING"))
    campaign = SimpleNamespace(out_dir=tmp_path, is_complete=lambda: False)
    told: list[str] = []
    workers = launcher.SlurmWorkers(cast(Campaign, campaign), jobs(3), told.append)
    assert workers.jobs == {0: "8_0", 1: "7_1", 2: "8_2"}
    assert cancelled == ["7_0"], "it may have asked to be queued again"
    assert told == ["SLURM jobs that keep running: 7_1", "SLURM jobs submitted: 8_0, 8_2"]
    assert not workers._look()
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
    monkeypatch.setattr(launcher, "_write_into", lambda log: None)
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
    options = launcher._parameters(Slurm(), "tiny", "cpu")["additional_parameters"]
    assert options == {"requeue": True}
    options = launcher._parameters(Slurm(), "tiny", "auto")["additional_parameters"]
    assert options["gres"] == "gpu:1"
