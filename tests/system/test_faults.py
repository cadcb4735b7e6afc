"""What happens to a run on a real machine: each fault with real processes."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import optuna
import pytest
from support import prepared
from support.command import write_large_images
from support.preloaded import Settings, Started
from support.spares import be_worker
from support.worked_experiment import WorkedExperiment

from reality_check.config import load_experiment
from reality_check.studies.progress import worker_states

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and mounts")

EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: blobs.npz}
model: {base: conv4, arguments: {width: 8}}
device: cpu
protocol:
  base: quick_one_search
  split: {folds: 2}
  training: {iterations_per_epoch: 6, max_epochs: 6, embedding_size: 8, batch_size: 8}
  search: {trials: 2, startup_trials: 2}
  reproductions: 1
  categories: [aggregate]
methods: [contrastive]
"""

DEADLY = """\
import os
import signal

from pytorch_metric_learning.losses import ContrastiveLoss


class Deadly(ContrastiveLoss):
    def forward(self, *arguments, **options):
        if os.path.exists("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(*arguments, **options)
"""

#: Of a worker whose heart beats every second, and who is lost after three without.
HASTY: Settings = {
    "reality_check.studies.storage": {"HEARTBEAT_INTERVAL": 1, "HEARTBEAT_GRACE": 3},
    "reality_check.training.fold_checkpoints": {"CHECKPOINT_SECONDS": 0.0},
}


def prepare(folder: Path, experiment: str = EXPERIMENT) -> None:
    write_large_images(folder / "blobs.npz")
    (folder / "experiment.yaml").write_text(experiment)


def start(folder: Path, *arguments: str, log: str = "log") -> Started:
    return Started(folder, folder / log, "run", "experiment.yaml", *arguments, spares=5)


def run(folder: Path, *arguments: str, log: str = "again") -> tuple[int, str]:
    """Run to the end; exit status and what was said about errors."""
    process = start(folder, *arguments, log=log)
    return process.wait(timeout=400), process.complaints()


def wait_until(condition: Callable[[], object], *processes: Started) -> None:
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, "it did not happen in 200 seconds"
        assert all(process.poll() is None for process in processes), "a process has ended"
        time.sleep(0.05)


def complete_slots(out: Path, study: str) -> list[int]:
    stored = optuna.load_study(study_name=study, storage=f"sqlite:///{out / 'studies.db'}")
    return sorted(t.user_attrs["trial_index"] for t in stored.trials if t.state.name == "COMPLETE")


# -- memory --------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_for_memory_again_and_again_stops_the_run(tmp_path: Path) -> None:
    """The kernel ends a process without memory as this loss does: by SIGKILL."""
    text = EXPERIMENT.replace("[contrastive]", "[{name: mine, loss: deadly_loss.Deadly}]")
    prepare(tmp_path, text)
    (tmp_path / "deadly_loss.py").write_text(DEADLY)
    process = start(tmp_path, "--out", "out")
    # The loss is checked in the run itself, which must outlive that.
    wait_until((tmp_path / "out" / "logs").exists, process)
    (tmp_path / "deadly").touch()
    status = process.wait(timeout=400)
    error = process.complaints()
    assert status == 1, error
    assert "Traceback" not in error
    assert "memory" in error
    assert re.search(r"(worker was lost 4 times|was ended 4 times)", error)
    (tmp_path / "deadly").unlink()
    status, error = run(tmp_path, "--out", "out")
    assert status == 0, error
    assert complete_slots(tmp_path / "out", "mine/search") == [0, 1]


# -- disks ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 24 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or mount("-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)) != 0:
        pytest.skip("only root may mount a small disk")
    yield disk
    assert subprocess.run(["umount", "-l", str(disk)]).returncode == 0


def mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], stderr=subprocess.DEVNULL).returncode


def fill(disk: Path) -> Path:
    waste = disk / "waste"
    try:
        with waste.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        return waste
    raise AssertionError("the disk has no end")


def test_a_disk_that_fills_stops_the_run_and_it_goes_on_after(
    tmp_path: Path, small_disk: Path
) -> None:
    prepare(tmp_path)
    out = small_disk / "out"
    process = start(tmp_path, "--out", str(out))
    wait_until(lambda: any(s.get("epoch", 0) >= 1 for s in worker_states(out)), process)
    waste = fill(small_disk)
    status = process.wait(timeout=400)
    error = process.complaints()
    assert status == 1, error
    assert "Traceback" not in error
    assert re.search(r"No space left|disk", error), error
    assert "After fixing the cause, rerun: " in error
    waste.unlink()
    status, error = run(tmp_path, "--out", str(out))
    assert status == 0, error
    assert complete_slots(out, "contrastive/search") == [0, 1]
    assert (out / "report.html").exists()


def test_a_disk_that_cannot_be_written_is_a_usage_error(tmp_path: Path, small_disk: Path) -> None:
    prepare(tmp_path)
    assert mount("-o", "remount,ro", str(small_disk)) == 0
    status, error = run(tmp_path, "--out", str(small_disk / "out"))
    assert status == 2, error
    assert len(error.splitlines()) == 1
    assert "cannot be written" in error
    assert "Read-only" in error


# -- several at once -----------------------------------------------------------------------------


def test_of_two_runs_started_at_once_one_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path)
    both = [start(tmp_path, "--out", "out", log=log) for log in ("one", "other")]
    statuses = [process.wait(timeout=400) for process in both]
    said = [process.complaints() for process in both]
    assert sorted(statuses) == [0, 2], said
    refused = said[statuses.index(2)]
    assert "another reality-check run" in refused
    assert len(refused.splitlines()) == 1
    assert complete_slots(tmp_path / "out", "contrastive/search") == [0, 1]


# -- clocks --------------------------------------------------------------------------------------


def finished_trials(tiny: Path, out: Path) -> list[str]:
    """What a worker of this process leaves of the tiny experiment, as text: a curve has NaN."""
    out.mkdir()
    recorded = WorkedExperiment(load_experiment(tiny), out)
    recorded.work()
    return [
        f"{unit.method} {unit.stage} {trial_index} {trial.value!r} {trial.params} {trial.curves}"
        for unit in recorded.states().ready()
        for trial_index, trial in unit.complete.items()
    ]


def test_a_clock_that_is_set_again_and_again_changes_no_result(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward and back by up to a year, whenever anybody reads it."""
    still = finished_trials(tiny, tmp_path / "still")
    chance, reads = random.Random(0), Counter[str]()
    really, year = datetime.now(), 365 * 86400.0

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Jumping:
            reads["datetime"] += 1
            then = really.astimezone(tz) + timedelta(seconds=chance.uniform(-year, year))
            return cls.fromtimestamp(then.timestamp(), tz)

    def jumping() -> float:
        reads["time"] += 1
        return really.timestamp() + chance.uniform(-year, year)

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr("optuna.storages._rdb.storage.datetime", Jumping)
    assert finished_trials(tiny, tmp_path / "jumping") == still
    assert len(still) == 5
    assert reads["time"]
    assert reads["datetime"]


# -- paused --------------------------------------------------------------------------------------


def test_a_worker_paused_beyond_the_grace_time_stands_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    prepared.prepare(load_experiment("experiment.yaml"), out)
    (out / "logs").mkdir(exist_ok=True)  # as the command makes it

    def worker(number: int) -> Started:
        log, words = tmp_path / f"worker_{number}", ("out", str(number))
        return Started(tmp_path, log, *words, program=be_worker, spares=0, settings=HASTY)

    paused = worker(7)
    mine = {"epoch": 0}

    def trains() -> bool:
        states = [s for s in worker_states(out) if s["worker"]["pid"] == paused.pid]
        mine.update(*states)
        return mine["epoch"] >= 1

    wait_until(trains, paused)
    paused.send_signal(signal.SIGSTOP)
    try:
        other = worker(8)
        assert other.wait(timeout=300) == 0, other.complaints()
    finally:
        paused.send_signal(signal.SIGCONT)
    assert paused.wait(timeout=100) == 0, paused.complaints()
    assert "its trial went to another" in paused.said() + paused.complaints()
    assert complete_slots(out, "contrastive/search") == [0, 1]
    assert complete_slots(out, "contrastive/reproductions") == [0]
    left = [str(path) for path in (out / "contrastive" / "search").rglob("*.pt")]
    assert left == []
