"""The scaling benchmark: each part at its smallest size, and the clock that it trusts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.imports import import_file
from support.in_process import run_command
from support.paths import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc"),
    pytest.mark.xdist_group("servers"),
    pytest.mark.usefixtures("blank_figures"),
]

#: The real experiment on fewer and smaller images, with shorter epochs.
SMALL_DATA = [
    "dataset.classes=40",
    "dataset.images_per_class=6",
    "model.arguments.width=8",
    "protocol.training.iterations_per_epoch=5",
    "protocol.training.batch_size=8",
]

Row = dict[str, str]
Run = Callable[..., list[Row]]


@pytest.fixture(scope="module")
def scaling() -> Iterator[ModuleType]:
    yield import_file(ROOT / "benchmarks" / "scaling.py")
    del sys.modules["scaling"]


@pytest.fixture
def small_data(scaling: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    compose = scaling.compose
    monkeypatch.setattr(scaling, "compose", lambda raw: compose(raw, SMALL_DATA))


@pytest.fixture
def run(scaling: ModuleType, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the script and returns the rows of its table; what else it said is in ``run.said``."""
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> list[Row]:
        scaling.main(arguments)
        said = capsys.readouterr().out
        lines = [line for line in said.splitlines() if line.startswith("|")]
        header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
        records = [dict(zip(header, row, strict=True)) for row in rows]
        return [{**row, "said": said} for row in records]

    yield call
    signal.signal(signal.SIGTERM, before)


def number(cell: str) -> float:
    return float(cell.split()[0])


def needs(storage: str) -> Any:
    marks = [pytest.mark.postgres] if storage == "postgresql" else []
    return pytest.param(storage, marks=[*marks])


def skip_without(scaling: ModuleType, storage: str) -> None:
    missing = scaling.not_here(storage)
    if missing is not None:
        pytest.skip(missing)


@pytest.mark.parametrize("storage", ["sqlite", "journal", needs("postgresql"), needs("mariadb")])
def test_what_a_trial_costs_on_each_storage(scaling: ModuleType, run: Run, storage: str) -> None:
    skip_without(scaling, storage)
    (row,) = run("--parts", "storage", "--storages", storage, "--studies", "1", "--each", "2")
    assert row["storage"] == storage
    assert number(row["trials"]) == 2 + 1, "and the baselines"
    assert number(row["calls a trial"]) > 10
    assert (number(row["SQL statements a trial"]) > 30) == (storage != "journal")
    assert number(row["storage a trial"]) > 0
    assert (row["server's CPU"] != "") == (storage in ("postgresql", "mariadb"))


@pytest.mark.parametrize("storage", ["sqlite", needs("postgresql")])
def test_workers_whose_trainings_sleep(scaling: ModuleType, run: Run, storage: str) -> None:
    skip_without(scaling, storage)
    small = ["--studies", "1", "--each", "2", "--seconds", "0.05", "--workers", "2"]
    (row,) = run("--parts", "simulation", "--storages", storage, *small)
    assert (row["storage"], row["workers"], row["trials"]) == (storage, "2", "5")
    parts = [number(row[name]) for name in ("training", "in the storage", "waiting", "all else")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(100, abs=0.3)


@pytest.mark.usefixtures("small_data")
def test_where_the_time_of_one_worker_goes(
    scaling: ModuleType, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_once(command: list[str], **options: Any) -> None:  # of three, which are timed
        if not started:
            subprocess.run(command, **options)
        started.append(command)

    started: list[list[str]] = []
    monkeypatch.setattr(scaling, "subprocess", SimpleNamespace(run=start_once))
    small = ["--methods", "1", "--trials", "1", "--reproductions", "1", "--epochs", "1"]
    rows = run("--parts", "trial", *small)
    by_label = {row["a worker's time"]: row for row in rows}
    *parts, whole = rows
    assert sum(number(row["seconds"]) for row in parts) == pytest.approx(
        number(whole["seconds"]), abs=0.2
    )
    # 4 folds of a trial and of a reproduction, and the complete network; one epoch each.
    assert by_label["training steps"]["calls"] == str(4 + 4 + 1)
    assert by_label["building networks"]["calls"] == str(4 + 4 + 1)
    assert {"evaluation", "records", "checkpoints", "scoring", "storage"} <= set(by_label)
    assert "a worker's imports" in whole["said"]
    assert len(started) == 3


@pytest.mark.usefixtures("small_data")
def test_one_experiment_with_one_and_two_workers(
    scaling: ModuleType, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That commands and their workers are processes of their own is not what this is about.
    def command(words: list[str], cwd: Path, **_: Any) -> Any:
        assert words[:3] == [sys.executable, "-m", "reality_check"]
        return run_command(cwd, *words[3:], *SMALL_DATA)

    monkeypatch.setattr(scaling, "subprocess", SimpleNamespace(run=command))
    small = ["--methods", "1", "--trials", "2", "--reproductions", "1", "--epochs", "1"]
    rows = run("--parts", "experiment", *small)
    assert [row["workers"] for row in rows] == ["1", "2"]
    for row in rows:
        parts = [number(row[name]) for name in ("start", "trials", "without work", "report")]
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(number(row["wall time"]), abs=0.3)
    assert "results.csv of all runs is the same" in rows[0]["said"]
    assert "2 workers are" in rows[0]["said"]


@pytest.mark.parametrize("arguments", [["--methods", "9"], ["--workers", "0"], ["--each", "0"]])
def test_sizes_that_cannot_be_are_refused(scaling: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        scaling.main(["--parts", "trial", *arguments])
    assert refused.value.code != 0


# -- the clock -----------------------------------------------------------------------------------


def test_every_second_has_one_label(scaling: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(scaling.time, "perf_counter", lambda: now[0])
    clock = scaling.Clock()

    def passes(seconds: float) -> None:
        now[0] += seconds

    passes(1)
    with clock.of("a"):
        passes(2)
        with clock.of("b"):
            passes(4)
        with clock.of("a"):
            passes(8)
    passes(16)
    clock.stop()
    assert clock.seconds == {"rest": 17, "a": 10, "b": 4}
    assert clock.calls == {"a": 1, "b": 1}


def test_other_threads_are_counted_apart(scaling: ModuleType) -> None:
    clock = scaling.Clock()

    def beat() -> None:
        with clock.of("storage"), clock.of("storage"):
            pass

    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()
    assert clock.calls == {f"storage{scaling.ELSEWHERE}": 1}
    assert clock.seconds["storage"] == 0


def test_the_cpu_time_of_a_process_and_its_children(scaling: ModuleType) -> None:
    before = scaling.cpu_seconds(os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert scaling.cpu_seconds(os.getpid()) > before
    assert scaling.cpu_seconds(None) == 0
