"""Workers as jobs of a scheduler known by its commands: Grid Engine, Ray, and one of scripts."""

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


def of_page(program: str) -> dict[str, str]:
    """The block of the page on clusters that submits with this program."""
    codes = re.findall(r"^```yaml\n(command:\n.*?)^```", page(), re.M | re.S)
    (block,) = (
        block for code in codes if program in (block := yaml.safe_load(code)["command"])["submit"]
    )
    return dict(block)


def page() -> str:
    return (DOCS / "cluster.md").read_text(encoding="utf-8")


@pytest.fixture(params=["scripts", pytest.param("gridengine", marks=on_gridengine)])
def block(forked_jobs: None, request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The block ``command:`` of a scheduler that is there."""
    if request.param == "scripts":
        return fake_scheduler.install(tmp_path / "queue")
    request.getfixturevalue("gridengine")
    return of_page("qsub -terse")


def command(folder: Path, block: dict[str, str], name: str, **changes: Any) -> Started:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(plain() | {"command": block} | changes))
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

    made = experiment().model_copy(update={"command": Command(**of_page("qsub -terse"))})
    results = run(made, out, Parallelism(1, launcher="command"), watch=watch, log=told.append)
    assert not steps
    assert scores(results) == alone
    ends = [text.partition(" was ")[2] for text in told if " was " in text]
    assert ends == ["asked to stop", "asked to stop", "lost (gone)"]
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert [sum(trial.stopped for trial in failed), sum(t.was_abandoned for t in failed)] == [2, 1]


#: Once there is a file "orders", a worker waits until "go" or "fail" stands there with its process.
OBEDIENT = """\
import os, sys, time
from pathlib import Path

from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

ORDERS, PID = Path({orders!r}), os.getpid()


class Obedient(NormalizedSoftmaxLoss):
    def forward(self, *arguments, **options):
        while "worker" in sys.argv and ORDERS.exists():
            order = ORDERS.read_text()
            if order in ("go", f"go {{PID}}"):
                break
            if order == f"fail {{PID}}":
                raise OSError("no table")
            time.sleep(0.05)
        return super().forward(*arguments, **options)
"""


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
def test_jobs_of_ray_stopped_left_failed_and_submitted_again(
    ray: Any, tmp_path: Path, alone: Scores
) -> None:
    """With the same results as one worker that nobody disturbs."""
    out, orders = tmp_path / "out", tmp_path / "orders"
    (tmp_path / "lo.py").write_text(OBEDIENT.format(orders=str(orders)))
    methods = [{"base": "quick/normalized_softmax", "loss": "lo.Obedient"}]
    block = of_page("ray job submit")
    submit = block["submit"].replace("--entrypoint-num-gpus 1", "--entrypoint-num-cpus 1")
    assert submit != block["submit"]

    def run(name: str) -> Started:
        return command(tmp_path, block | {"submit": submit}, name, methods=methods)

    def wait(condition: Callable[[], object], process: Started) -> None:
        def goes_on() -> None:
            assert process.poll() is None, process.said()

        wait_until(condition, 240, goes_on)

    def pid(worker: int) -> int:
        return progress(out, worker)["worker"]["pid"]

    first = run("first")
    wait(lambda: trains(out, 0) and trains(out, 1), first)
    orders.touch()
    stopped, other = jobs_of(out, "jobs")
    before = pid(0)
    assert ray.ask("ray", "job", "stop", "--no-wait", stopped)
    time.sleep(5)  # Ray itself waits for 3 s
    orders.write_text(f"go {before}")
    wait(lambda: pid(0) != before, first)
    assert f"job {stopped} was asked to stop" in first.said()
    jobs = jobs_of(out, "jobs")
    assert jobs[1] == other
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=120) == 130, first.said()
    assert "The jobs keep running; jobs.json" in first.said()

    second = run("second")
    wait(lambda: f"jobs that keep running: {', '.join(jobs)}" in second.said(), second)
    orders.write_text(f"fail {pid(1)}")
    assert second.wait(timeout=600) == 1, second.said()
    assert re.search(r"OSError: no table \(.*\)\. Full log: \S+/worker_1\.log", second.said())
    orders.write_text("go")

    def ends() -> list[str]:
        said = "".join(ray.ask("ray", "job", "status", job) for job in jobs)
        return re.findall(r"Job '\S+' (failed|was stopped)", said)

    wait_until(lambda: ends() == ["was stopped", "failed"], 240)
    last = run("last")
    assert last.wait(timeout=600) == 0, last.said()
    assert not {*jobs} & {*jobs_of(out, "jobs")}
    failed = [trial for trial in all_trials(out) if trial.state == "failed"]
    assert any(trial.stopped for trial in failed)
    assert scores(load_results(out)) == alone
