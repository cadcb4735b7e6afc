"""Workers as jobs of a scheduler that is known by its commands: Grid Engine, and one of scripts."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import fake_scheduler
from support.pace import wait_until
from support.paths import DOCS
from support.preloaded import Started
from support.slurm_jobs import (
    Scores,
    all_trials,
    experiment,
    jobs_of,
    plain,
    progress,
    scores,
    trains,
)

from reality_check.api import load_results, run
from reality_check.config.command import Command
from reality_check.launch import jobs
from reality_check.launch.parallelism import Parallelism

pytestmark = pytest.mark.usefixtures("blank_figures")


on_gridengine = [pytest.mark.gridengine, pytest.mark.xdist_group("gridengine")]


def of_gridengine() -> dict[str, str]:
    """The block as the page on clusters has it."""
    code = re.search(r"^```yaml\n(command:\n.*?qsub -terse.*?)^```", page(), re.M | re.S)
    assert code is not None
    block: dict[str, str] = yaml.safe_load(code[1])["command"]
    return block


def page() -> str:
    return (DOCS / "cluster.md").read_text(encoding="utf-8")


@pytest.fixture(params=["scripts", pytest.param("gridengine", marks=on_gridengine)])
def block(forked_jobs: None, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The block ``command:`` of a scheduler that is there."""
    if request.param == "scripts":
        return fake_scheduler.install(tmp_path / "queue")
    request.getfixturevalue("gridengine")
    return of_gridengine()


def command(folder: Path, block: dict[str, str], name: str) -> Started:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(plain() | {"command": block}))
    words = ["run", "tiny.yaml", "--out", "out", "--launcher", "command", "--workers", "2"]
    often = {"reality_check.launch.jobs": {"POLL_SECONDS": 1.0}}
    log = folder / name
    return Started(folder, log, *words, spares=0, settings=often, errors=log)


def signal_worker(out: Path, number: int, what: signal.Signals) -> bool:
    """SIGKILL ends a worker as the kernel does when memory is short."""
    try:
        os.kill(progress(out, number)["worker"]["pid"], what)
    except (KeyError, ProcessLookupError):
        return False
    return True


def test_workers_and_whoever_watches_killed(
    block: dict[str, str], tmp_path: Path, alone: Scores
) -> None:
    """And one who watches is interrupted, while a worker is paused, so that work is left."""
    out = tmp_path / "out"
    first = command(tmp_path, block, "first")
    wait_until(lambda: trains(out, 0) and signal_worker(out, 0, signal.SIGSTOP), 240)
    before = jobs_of(out, "jobs")
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=120) == 130, first.said()
    assert "The jobs keep running; jobs.json" in first.said()

    second = command(tmp_path, block, "second")

    def goes_on() -> None:
        assert second.poll() is None, second.said()

    wait_until(lambda: "jobs that keep running: " in second.said(), 240, goes_on)
    assert jobs_of(out, "jobs")[0] == before[0]
    assert signal_worker(out, 0, signal.SIGKILL)
    time.sleep(random.Random(1).uniform(0.0, 2.0))  # it is replaced by now, or is not
    second.kill()
    second.wait(timeout=60)
    assert len(jobs_of(out, "jobs")) == 2

    last = command(tmp_path, block, "last")
    assert last.wait(timeout=600) == 0, last.said()
    trials = all_trials(out)  # exact counts
    assert sum(trial.was_abandoned for trial in trials if trial.state == "failed") >= 1
    assert scores(load_results(out)) == alone


@pytest.mark.gridengine
@pytest.mark.xdist_group("gridengine")
def test_one_worker_interrupted_in_every_way(
    gridengine: Any,
    tmp_path: Path,
    alone: Scores,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Its time is nearly over, it is deleted with a notice, nobody answers, and it is killed."""
    monkeypatch.setattr(jobs, "POLL_SECONDS", 1.0)
    out, told = tmp_path / "out", []

    def away() -> None:
        assert signal_worker(out, 0, signal.SIGSTOP)  # else it may be done before it is killed
        gridengine.stop_master()
        monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)
        wait_until(lambda: not gridengine.ask("qstat", "-j", jobs_of(out, "jobs")[0]), 60)

    def back() -> None:
        gridengine.start_master()
        monkeypatch.setattr(jobs, "POLL_SECONDS", 1.0)
        assert signal_worker(out, 0, signal.SIGKILL)

    def next_forked() -> None:  # the first job has shown that one starts by itself
        request.getfixturevalue("forked_jobs")
        gridengine.pass_on("PYTHONPATH", "REALITY_CHECK_CACHE", "FORKED_JOBS")
        os.kill(progress(out, 0)["worker"]["pid"], signal.SIGUSR1)

    steps: list[Callable[[], object]] = [
        next_forked,
        lambda: gridengine.ask("qdel", jobs_of(out, "jobs")[0]),
        away,
    ]
    seen: set[int] = set()
    since: list[float] = []

    def watch(recorded: object) -> None:
        pid = progress(out, 0).get("worker", {}).get("pid")
        if steps and pid not in seen and trains(out, 0):
            seen.add(pid)
            steps.pop(0)()
            if not steps:
                since.append(time.monotonic())
        if since and time.monotonic() - since[0] > 2:
            since.clear()
            back()

    made = experiment().model_copy(update={"command": Command(**of_gridengine())})
    results = run(made, out, Parallelism(1, launcher="command"), watch=watch, log=told.append)
    assert not steps
    assert scores(results) == alone
    ends = [text.partition(" was ")[2] for text in told if " was " in text]
    assert ends == ["asked to stop", "asked to stop", "lost (gone)"]
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert [sum(trial.stopped for trial in failed), sum(t.was_abandoned for t in failed)] == [2, 1]
