"""Journal files: healed where they are torn, and served by one worker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import optuna
import pytest
from support.prepared import prepare

from reality_check.cli.main import main
from reality_check.config import load_experiment
from reality_check.launch import worker
from reality_check.launch.work_loop import WorkLoop
from reality_check.launch.worker import work
from reality_check.studies.output_folder import load_locked
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.storage import (
    check_workers,
    open_storage,
)
from reality_check.utils.errors import UsageError


def test_a_torn_last_line_of_a_journal_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "studies.log"
    url = f"journal://{path}"
    study = optuna.create_study(storage=open_storage(url), study_name="one")
    study.enqueue_trial({"x": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "stu')
    study = optuna.load_study(storage=open_storage(url), study_name="one")
    assert path.read_bytes() == whole
    assert "torn" in caplog.text
    study.enqueue_trial({"x": 2})
    again = optuna.load_study(storage=open_storage(url), study_name="one")
    assert len(again.trials) == 2


def test_a_journal_serves_one_worker(tmp_path: Path) -> None:
    url = f"journal://{tmp_path / 'studies.log'}"
    check_workers(url, 1)
    check_workers(None, 8)
    with pytest.raises(UsageError, match="serves one worker, got 2"):
        check_workers(url, 2)


class Held:
    """A process that holds what a worker on a journal holds, until it is killed."""

    def __init__(self, url: str) -> None:
        code = (
            "import sys, time; from reality_check.studies.storage import sole_worker\n"
            "with sole_worker(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)"
        )
        command = [sys.executable, "-c", code, url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_second_worker_on_a_journal_is_refused(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, url = tmp_path / "out", f"journal://{tmp_path / 'studies.log'}"
    locked = prepare(load_experiment(tiny, [f"storage={url}"]), out).experiment
    RecordedExperiment(locked, out).set_attribute("data", {})
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # which the command sets for good
    worked: list[WorkLoop] = []
    monkeypatch.setattr(worker, "work_on", worked.extend)
    first = Held(url)
    try:
        for storage in ([], ["--storage", url]):
            assert main(["worker", str(out), *storage]) == 2
            error = capsys.readouterr().err
            assert f"serves one worker, which is process {first.process.pid} of the mach" in error
            assert len(error.splitlines()) == 1
        assert worked == []
    finally:
        first.kill()
    # The one that held it was killed: the next one may work.
    assert main(["worker", str(out)]) == 0
    assert len(worked) == 1


def test_the_next_worker_on_a_journal_takes_up_what_the_last_one_had(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one was killed on another machine, or this one has been restarted since."""
    out, url = tmp_path / "out", f"journal://{tmp_path / 'studies.log'}"
    locked = prepare(load_experiment(tiny, [f"storage={url}"]), out).experiment
    recorded = RecordedExperiment(locked, out)
    stage = recorded.study(next(recorded.states().ready()))
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    stage.study.ask().set_user_attr("worker", {"host": "elsewhere/1", "pid": 1, "started": 1})
    stage.release_lost()
    assert [trial.state for trial in stage.trials()] == ["running"]
    states: list[str] = []

    def look(loops: Sequence[WorkLoop]) -> None:
        (loop,) = loops
        works = loop._recorded.states().ready()
        states.extend(trial.state for work in works for trial in work.attempts)

    monkeypatch.setattr(worker, "work_on", look)
    assert work(out, 0) == 0
    assert states == ["failed"]


@pytest.mark.parametrize("url", ["journal://studies.log", "journal:////no/such/folder/x.log"])
def test_a_journal_needs_a_folder(url: str) -> None:
    with pytest.raises(UsageError, match="whole path"):
        open_storage(url)


@pytest.mark.usefixtures("workers_in_this_process")
def test_a_whole_experiment_on_a_journal(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    command = ["run", str(tiny), f"storage=journal://{tmp_path / 'studies.log'}", "--out", out]
    assert main([*command, "--workers", "2"]) == 2
    assert "serves one worker" in capsys.readouterr().err
    assert main(command) == 0
    assert RecordedExperiment(load_locked(Path(out)), Path(out)).is_complete()
