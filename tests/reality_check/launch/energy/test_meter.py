"""What a worker notes of the counters while it works."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

from reality_check.launch.energy.counters import Counter
from reality_check.launch.energy.meter import Meter
from reality_check.report.energy_shares import read_energy
from reality_check.studies.energy_notes import notes_folder
from reality_check.utils.processes import this_boot

SEARCH, COMPLETE = ("a", "search"), ("a", "final")


def counting(key: str = "c", part: str = "gpus") -> Counter:
    """A counter that counts its readings."""
    numbers = itertools.count()
    return Counter(key, part, None, lambda: float(next(numbers)))


def notes(out_dir: Path) -> list[dict[str, Any]]:
    (path,) = notes_folder(out_dir).iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_note_whenever_the_work_changes(tmp_path: Path) -> None:
    meter = Meter(tmp_path, lambda: ([counting()], ["no x"]), period=1000)
    before = time.monotonic()
    for work in (None, SEARCH, SEARCH, COMPLETE, None):
        meter.begin(work)
    meter.close()
    meter.close()
    head, *rest = notes(tmp_path)
    assert head == {
        "machine": this_boot(),
        "counters": {"c": {"part": "gpus", "wraps_at": None}},
        "missing": ["no x"],
    }
    assert [(n["work"], n["joules"]) for n in rest] == [
        (["a", "search"], {"c": 0.0}),
        (["a", "final"], {"c": 1.0}),
        (None, {"c": 2.0}),
    ]
    times = [n["time"] for n in rest]
    assert before <= times[0]
    assert times == sorted(times)


def test_and_again_and_again_while_it_lasts(tmp_path: Path) -> None:
    meter = Meter(tmp_path, lambda: ([counting()], []), period=0.01)
    meter.begin(SEARCH)
    while len(notes(tmp_path)) < 5:
        time.sleep(0.01)
    meter.close()
    _, *rest = notes(tmp_path)
    assert [n["work"] for n in rest] == [*[list(SEARCH)] * (len(rest) - 1), None]
    (energy,), _ = read_energy(tmp_path)
    assert energy.kilowatt_hours == pytest.approx((len(rest) - 1) / 3.6e6)


def test_a_worker_that_finds_no_work_notes_nothing(tmp_path: Path) -> None:
    def unasked() -> Any:
        raise AssertionError

    meter = Meter(tmp_path, unasked)
    meter.begin(None)
    meter.close()
    assert list(tmp_path.iterdir()) == []


def test_without_counters_only_the_reason_is_noted(tmp_path: Path) -> None:
    meter = Meter(tmp_path, lambda: ([], ["There are none."]), period=0.01)
    meter.begin(SEARCH)
    meter.close()
    assert [note["missing"] for note in notes(tmp_path)] == [["There are none."]]
    assert read_energy(tmp_path) == ((), ("There are none.",))


def test_a_counter_that_fails_later_leaves_the_others(tmp_path: Path) -> None:
    def fail() -> float:
        raise OSError("gone")

    broken = Counter("broken", "gpus", None, fail)
    meter = Meter(tmp_path, lambda: ([broken, counting()], []), period=1000)
    meter.begin(SEARCH)
    meter.close()
    assert [n["joules"] for n in notes(tmp_path)[1:]] == [{"c": 0.0}, {"c": 1.0}]


@pytest.mark.parametrize("blocked", ["folder", "disk"])
def test_where_it_cannot_be_written_the_work_goes_on(tmp_path: Path, blocked: str) -> None:
    meter = Meter(tmp_path, lambda: ([counting()], []), period=1000)
    if blocked == "folder":
        (tmp_path / "logs").write_text("a file")
    meter.begin(SEARCH)
    if blocked == "disk":
        assert meter._file is not None
        meter._file.close()
        meter._file = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - the meter closes it
    meter.begin(COMPLETE)
    meter.begin(SEARCH)
    meter.close()
    assert read_energy(tmp_path) == ((), ())
