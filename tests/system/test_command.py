"""The command stopped, broken and mended: interrupted, killed, and with a loss that raises."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command import EXPERIMENT, finish, prepare, start
from support.pace import slowness, wait_until
from support.preloaded import Started

from reality_check.cli.main import main
from reality_check.launch import local
from reality_check.studies.output_folder import load_locked
from reality_check.studies.progress import worker_states
from reality_check.studies.recorded_experiment import RecordedExperiment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
FEWER = ("protocol.reproductions=1", "protocol.search.trials=1")
#: So that a fast machine is not done before it is stopped.
UNHURRIED = """\
import time

from pytorch_metric_learning.losses import ContrastiveLoss


class Unhurried(ContrastiveLoss):
    def forward(self, *arguments, **options):
        time.sleep(0.02)
        return super().forward(*arguments, **options)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with an experiment that trains for a while."""
    prepare(tmp_path, EXPERIMENT.replace("max_epochs: 2", "max_epochs: 30, patience: null"))
    return tmp_path


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def run(folder: Path, *words: str, log: str = "log") -> Started:
    """The command, with its imports done; its log must not have been there."""
    assert not (folder / log).exists()
    return Started(folder, folder / log, "run", *words)


def ended(process: Started) -> tuple[int, str, str]:
    """Its exit status and what it wrote, once it has ended."""
    status = process.wait(120 * slowness())
    return status, process.said(), process.complaints()


def wait_while_it_runs(
    condition: Callable[[], bool], process: subprocess.Popen[str] | Started
) -> None:
    def check() -> None:
        assert process.poll() is None, process

    wait_until(condition, 60, check)


def is_training(out: Path) -> bool:
    return any(state.get("epoch", 0) >= 2 for state in worker_states(out))


def workers_of(out: Path) -> set[int]:
    return {state["worker"]["pid"] for state in worker_states(out)}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_ctrl_c_ends_at_once_and_the_same_command_goes_on(lab: Path) -> None:
    words = ["--workers", "2", "name=a.b", "--out", "the out"]
    process = run(lab, "experiment.yaml", *words, *FEWER)  # a trial for each worker
    out = lab / "the out"
    wait_while_it_runs(lambda: is_training(out) and len(workers_of(out)) == 2, process)
    workers = workers_of(out)
    process.send_signal(signal.SIGINT)
    status, _, error = ended(process)
    assert status == 130
    assert all(is_gone(pid) for pid in workers)
    assert "Traceback" not in error
    # Another machine, which does not see that they are gone, need not wait for them.
    recorded = RecordedExperiment(load_locked(out), out)
    states = {t.state for unit in recorded.states().ready() for t in unit.attempts}
    assert "failed" in states
    assert "running" not in states
    again = re.search(r"To continue: (.*)", error)
    assert again is not None
    words = shlex.split(again[1])
    assert words[:2] == ["reality-check", "run"]
    assert "the out" in words

    status, said, error = ended(run(lab, *words[2:], log="again"))
    assert status == 0, error
    assert "Report: the out/report.html" in said


@pytest.mark.usefixtures("preloaded_workers", "blank_figures")
def test_after_its_time_a_run_stops_and_the_same_command_gives_the_same_results(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lab)
    (lab / "unhurried.py").write_text(UNHURRIED)
    method = "{name: contrastive, loss: unhurried.Unhurried, samples_per_class: 2}"
    words, limit, out = (
        ["run", "experiment.yaml", *FEWER, f"methods=[{method}]", "--out"],
        ["--for", "59m60s"],
        lab / "out",
    )

    def now() -> float:
        """An hour later, once the worker trains."""
        return time.monotonic() + 3600 * is_training(out)

    for grace, folds in ((120.0, "2"), (0.0, "1")):
        again = [*words, "out", *limit, "--folds-at-once", folds]
        with monkeypatch.context() as patch:
            patch.setattr(local, "GRACE_SECONDS", grace)
            patch.setattr(local, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
            assert main(again) == 75
        told = capsys.readouterr()
        assert "the time is over: each worker stops at the end of its current epoch" in told.out
        assert ("worker 0 did not stop within 0 s and is killed" in told.out) == (grace == 0)
        assert re.search(r"contrastive +0 of 1 +0 of 1", told.out)
        assert f"To continue: {shlex.join(['reality-check', *again])}" in told.err
        recorded = RecordedExperiment(load_locked(out), out)
        *_, attempt = [t for unit in recorded.states().ready() for t in unit.attempts]
        assert (attempt.state, attempt.stopped) == ("failed", grace > 0)
    log = (out / "logs" / "worker_0.log").read_text()
    assert log.count("asked to stop; the checkpoint is written") == 1
    assert "No results yet" in (out / "report.md").read_text()

    for name in ("out", "whole"):
        assert main([*words, name, *limit]) == 0
        assert "Done in " in capsys.readouterr().out
    assert (out / "results.csv").read_bytes() == (lab / "whole" / "results.csv").read_bytes()


FRAGILE = """\
from pytorch_metric_learning.losses import ContrastiveLoss

calls = 0


class Fragile(ContrastiveLoss):
    def forward(self, *arguments, **options):
        global calls
        calls += 1
        if calls == 5:
            raise OSError("the table\\nis missing")
        return super().forward(*arguments, **options)
"""


def test_exception_in_a_users_loss_is_told_and_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(
        tmp_path, EXPERIMENT.partition("methods")[0] + "methods: [{name: mine, loss: lo.Fragile}]"
    )
    (tmp_path / "lo.py").write_text(FRAGILE)
    status, _, error = ended(run(tmp_path, "experiment.yaml", *FEWER, log="log_1"))
    assert status == 1
    assert "Traceback" not in error
    assert "mine, search: OSError: the table is missing" in error
    log = re.search(r"Full log: (\S+)", error)
    assert log is not None
    story = (tmp_path / log[1]).read_text()
    assert "lo.py" in story
    assert "in forward" in story
    assert "After fixing the cause, rerun: reality-check run experiment.yaml" in error

    monkeypatch.chdir(tmp_path)
    assert main(["status", "runs/experiment"]) == 0
    assert "Stopped: mine, search: OSError: the table is missing" in capsys.readouterr().out

    # No trial is complete, so the mended code may continue in the same folder.
    (tmp_path / "lo.py").write_text(FRAGILE.replace("calls == 5", "calls < 0"))
    status, _, error = ended(run(tmp_path, "experiment.yaml", *FEWER, log="log_2"))
    assert status == 0, error
    assert (tmp_path / "runs" / "experiment" / "report.html").exists()

    # Now there are results: they must not mix with those of other code.
    (tmp_path / "lo.py").write_text(FRAGILE.replace("calls == 5", "calls < -1"))
    status, _, error = ended(run(tmp_path, "experiment.yaml", *FEWER, log="log_3"))
    assert status == 2
    assert "the code of lo.Fragile has changed" in error


def test_a_second_run_in_the_folder_is_refused_and_a_killed_worker_is_replaced(lab: Path) -> None:
    words = ["experiment.yaml", "--out", "out", *FEWER, "methods=[contrastive]"]
    process = run(lab, *words)
    wait_while_it_runs(lambda: is_training(lab / "out"), process)
    (worker,) = workers_of(lab / "out")
    assert worker in children(process.pid)
    os.kill(worker, signal.SIGSTOP)  # else it may be done before it is killed
    status, _, error = ended(run(lab, *words, log="second"))
    assert status == 2
    assert f"process {process.pid}" in error
    os.kill(worker, signal.SIGKILL)
    wait_while_it_runs(lambda: bool(workers_of(lab / "out") - {worker}), process)
    status, _, error = ended(process)
    assert status == 0, error
    assert (lab / "out" / "report.html").exists()


#: All that is to be seen has happened when they train.
ENDS_FOLD_PROCESSES = """\
from multiprocessing import parent_process

from pytorch_metric_learning.losses import ContrastiveLoss


class Mine(ContrastiveLoss):
    def forward(self, *arguments, **options):
        if parent_process() is not None:
            raise OSError("a fold process trains")
        return super().forward(*arguments, **options)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="fold processes need PYTHONSAFEPATH")
def test_files_named_like_modules_of_python_hide_none(tmp_path: Path) -> None:
    """Neither from the command, nor from workers, nor from their fold processes."""
    own = "methods: [{name: mine, loss: my_losses.Mine}]"
    prepare(tmp_path, re.sub("methods: .*", own, EXPERIMENT))
    (tmp_path / "my_losses.py").write_text(ENDS_FOLD_PROCESSES)
    for name in ("random", "operator", "queue", "socket", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('hidden')")
    words = ("run", "experiment.yaml", "--out", "out", "--folds-at-once", "2")
    status, _, error = finish(start(tmp_path, *words, *FEWER))
    assert status == 1, error
    assert "mine, search: OSError: a fold process trains" in error
