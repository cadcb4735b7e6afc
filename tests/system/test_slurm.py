"""Workers as SLURM jobs, on a real SLURM of one machine with pretended GPUs."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import DOCS
from support.preloaded import Started
from support.prepared import prepare
from support.slurm_jobs import (
    TRIALS,
    Scores,
    experiment,
    jobs,
    jobs_of,
    plain,
    scores,
    search_trials,
    trains,
)

from reality_check.api import load_results, run, run_suite
from reality_check.config import compose
from reality_check.config.suite import Suite
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.errors import UsageError

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.usefixtures("blank_figures"),
]


PAGE = DOCS / "cluster.md"
takes_minutes = pytest.mark.skipif(
    "REALITY_CHECK_LONG_TESTS" not in os.environ,
    reason="SLURM waits for minutes by itself; set REALITY_CHECK_LONG_TESTS=1",
)


def trains_anywhere(out: Path) -> bool:
    numbers = [file.stem.partition("_")[2] for file in (out / "logs").glob("worker_*.json")]
    return any(trains(out, int(number)) for number in numbers)


def command(folder: Path, name: str) -> Started:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(plain(epochs=120)))
    words = ["run", "tiny.yaml", "--out", "out", "--launcher", "slurm", "--workers", "2"]
    often = {"reality_check.launch.jobs": {"POLL_SECONDS": 1.0}}
    log = folder / name
    return Started(folder, log, *words, spares=0, settings=often, errors=log)


class Once:
    """Does something once, while workers are watched, as soon as worker 0 trains."""

    def __init__(self, out: Path, action: Callable[[], Any]) -> None:
        self.out, self.action = out, action
        self.done = False

    def __call__(self, recorded: RecordedExperiment) -> None:
        if not self.done and trains(self.out, 0):
            self.action()
            self.done = True


class TestArray:
    def test_the_jobs_of_a_suite_go_from_data_set_to_data_set(
        self, slurm: Any, tmp_path: Path
    ) -> None:
        members = {}
        for number, name in enumerate(("few", "other")):
            whole = plain(epochs=3)
            data = whole["dataset"] | {"name": name, "classes": 40 + 2 * number}
            members[name] = compose(whole | {"name": name, "dataset": data, "seed": number})
        out, told = tmp_path / "out", []
        results = run_suite(Suite("both", members), out, jobs(2), log=told.append)
        assert results.finished
        assert len(told) == 1, "one array of jobs for all data sets"
        for name in members:
            search_trials(out / name)
        assert (out / "report.html").exists()

    @pytest.mark.usefixtures("forked_jobs")
    def test_two_workers_share_the_work_and_a_cancelled_job_is_not_replaced(
        self, slurm: Any, tmp_path: Path, alone: Scores
    ) -> None:
        out, told = tmp_path / "out", []
        cancel = Once(out, lambda: slurm.ask("scancel", "--signal=KILL", jobs_of(out)[0]))
        see = f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/gpu_of_$SLURM_ARRAY_TASK_ID"
        made = experiment(setup=[see])
        results = run(made, out, jobs(2), watch=cancel, log=told.append)
        assert cancel.done
        assert scores(results) == alone
        assert len(search_trials(out)) > TRIALS
        gpus = [(tmp_path / f"gpu_of_{number}").read_text().strip() for number in (0, 1)]
        assert sorted(gpus) == ["0", "1"], "each job sees the GPU that is its own"
        one, two = jobs_of(out)
        assert [text for text in told if "submitted" in text] == [
            f"SLURM jobs submitted: {one}, {two}"
        ]
        assert one.partition("_")[0] == two.partition("_")[0]
        for number, job in enumerate((one, two)):
            assert f"SLURM job {job} on" in (out / "logs" / f"worker_{number}.log").read_text()

    @takes_minutes
    def test_a_real_time_limit(self, slurm: Any, tmp_path: Path) -> None:
        """SLURM may send the notice a minute early: not while the worker still starts."""
        made = compose(plain(epochs=1500, hours=1 / 30, notice_seconds=35))
        out, told = tmp_path / "out", []
        run(made, out, jobs(1), log=told.append)
        assert any(trial.stopped for trial in search_trials(out))
        assert "asks to be requeued" in (out / "logs" / "worker_0.log").read_text()

    @pytest.mark.usefixtures("forked_jobs")
    def test_whoever_watches_the_jobs_keep_running(self, slurm: Any, tmp_path: Path) -> None:
        """Ctrl-C, the same command, a cancelled array, and the same command again."""
        out = tmp_path / "out"
        first = command(tmp_path, "first")
        slurm.wait_until(lambda: trains(out, 0))
        for job in jobs_of(out):  # however long the commands take to start on a busy machine
            slurm.ask("scontrol", "suspend", job)
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=600) == 130, first.said()
        assert "The jobs keep running; squeue" in first.said()
        before = jobs_of(out)
        assert len(slurm.ask("squeue", "-h", "-r").splitlines()) == 2

        second = command(tmp_path, "second")

        def said() -> list[str]:
            assert second.poll() is None, second.said()
            return [line for line in second.said().splitlines() if "keep running" in line]

        slurm.wait_until(said)
        assert all(job in said()[0] for job in before)
        assert jobs_of(out) == before
        slurm.ask("scancel", *before)
        assert second.wait(timeout=600) == 1, second.said()
        assert "all jobs have ended (cancelled" in second.said()

        third = command(tmp_path, "third")
        assert third.wait(timeout=600) == 0, third.said()
        assert not set(jobs_of(out)) & set(before)
        search_trials(out)

    @takes_minutes
    def test_the_job_of_the_page_works_and_is_queued_again(
        self, slurm: Any, tmp_path: Path, alone: Scores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the page on clusters has it, but with the processors that this machine has."""
        script = re.search(r"^#!/bin/bash\n.*?(?=^```)", PAGE.read_text(), re.M | re.S)
        assert script is not None
        (tmp_path / "worker.sh").write_text(script[0].replace("cpus-per-task=4", "cpus-per-task=1"))
        out = tmp_path / "runs" / "cub"
        prepare(experiment(), out)
        (out / "logs").mkdir(exist_ok=True)  # as the command makes it that watches
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        monkeypatch.setenv("PATH", path)
        job = slurm.ask("sbatch", "--parsable", f"--chdir={tmp_path}", str(tmp_path / "worker.sh"))
        log = out / "logs" / f"worker_{job.strip()}.log"
        slurm.wait_until(lambda: trains_anywhere(out), seconds=120)
        slurm.ask("scancel", "--signal=USR2", job.strip())
        slurm.wait_until(lambda: log.exists() and log.read_text().count(" begins: ") == 2)
        slurm.wait_until(lambda: not slurm.ask("squeue", "-h", "-j", job.strip()))
        assert scores(load_results(out)) == alone
        assert len([trial for trial in search_trials(out) if trial.stopped]) == 1

    def test_what_slurm_refuses_is_said(self, slurm: Any, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"SLURM refuses the job: .*partition"):
            run(experiment(partition="nowhere"), tmp_path / "out", jobs(1))
