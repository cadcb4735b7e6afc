"""From notes to kilowatt hours: every joule once, whoever noted it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reality_check.report.energy_shares import read_energy
from reality_check.results import Energy

KWH = 3.6e6
A, B = ("a", "search"), ("b", "search")
_NUMBER = itertools.count()

Note = tuple[float, float, tuple[str, str] | None]


def note(
    out_dir: Path,
    notes: Sequence[Note],
    machine: str = "m",
    part: str = "gpus",
    wraps_at: float | None = None,
    missing: Sequence[str] = (),
) -> Path:
    """Write what one worker noted of one counter: time, kilowatt hours, the work that begins."""
    about = {"part": part, "wraps_at": None if wraps_at is None else wraps_at * KWH}
    lines: list[dict[str, Any]] = [
        {"machine": machine, "counters": {"c": about}, "missing": list(missing)}
    ]
    lines += [{"time": t, "work": work, "joules": {"c": kwh * KWH}} for t, kwh, work in notes]
    path = out_dir / "logs" / "energy" / f"{next(_NUMBER)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def used(out_dir: Path) -> dict[str, float]:
    """Kilowatt hours by method."""
    return {energy.method: energy.kilowatt_hours for energy in read_energy(out_dir)[0]}


def test_each_method_has_what_was_used_while_it_was_worked_on(tmp_path: Path) -> None:
    note(
        tmp_path,
        [
            (0, 5, A),
            (30, 6, A),
            (36, 6.5, ("a", "final")),
            (60, 8, None),
            (90, 11, B),
            (99, 12, None),
        ],
        missing=["No counter of x.", "No counter of y."],
    )
    note(tmp_path, [(5, 0, B), (23, 4, None)], "other machine", missing=["No counter of y."])
    energy, missing = read_energy(tmp_path)
    assert energy == (
        Energy("a", "final", "gpus", pytest.approx(1.5), pytest.approx(24 / 3600)),
        Energy("a", "search", "gpus", pytest.approx(1.5), pytest.approx(36 / 3600)),
        Energy("b", "search", "gpus", pytest.approx(1 + 4), pytest.approx((9 + 18) / 3600)),
    )
    assert missing == ("No counter of x.", "No counter of y.")


def test_workers_at_the_same_counter_share_what_it_counts(tmp_path: Path) -> None:
    note(tmp_path, [(0, 0, A), (10, 10, A), (30, 30, None)])
    note(tmp_path, [(10, 10, B), (20, 20, None)])
    assert used(tmp_path) == {"a": pytest.approx(10 + 5 + 10), "b": pytest.approx(5)}


def test_two_workers_at_one_method_do_not_double_it(tmp_path: Path) -> None:
    for start in (0, 7):
        note(tmp_path, [(start + 30 * n, start + 30 * n, A) for n in range(4)])
    (energy,), _ = read_energy(tmp_path)
    assert energy.kilowatt_hours == pytest.approx(97)  # from 0 to 97
    assert energy.hours == pytest.approx(2 * 90 / 3600)


def test_two_counters_of_a_part_add_up_but_not_their_hours(tmp_path: Path) -> None:
    path = note(tmp_path, [(0, 1, A), (18, 2, None)])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["counters"]["d"] = lines[0]["counters"]["c"]
    for line in lines[1:]:
        line["joules"]["d"] = 3 * line["joules"]["c"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_energy(tmp_path)[0] == (
        Energy("a", "search", "gpus", pytest.approx(1 + 3), pytest.approx(18 / 3600)),
    )


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    note(tmp_path, [(0, 0.9, A), (30, 0.2, A), (60, 0.7, A), (90, 0.1, None)], wraps_at=1)
    assert used(tmp_path) == {"a": pytest.approx(0.3 + 0.5 + 0.4)}


def test_readings_out_of_order_are_no_wrap(tmp_path: Path) -> None:
    note(tmp_path, [(0, 0, A), (10.0000, 0.2000, A), (20, 0.4, None)], wraps_at=1)
    note(tmp_path, [(10.0001, 0.1999, A), (20, 0.4, None)], wraps_at=1)
    assert used(tmp_path) == {"a": pytest.approx(0.4, abs=0.001)}


def test_a_counter_that_began_anew_counts_nothing_before(tmp_path: Path) -> None:
    note(tmp_path, [(0, 7, A), (30, 2, A), (60, 3, None)])  # the driver was loaded again
    assert used(tmp_path) == {"a": pytest.approx(1)}


def test_what_happened_while_a_worker_stood_still_is_not_its_own(tmp_path: Path) -> None:
    note(tmp_path, [(0, 0, A), (30, 1, A), (4000, 50, A), (4030, 51, None)])
    assert used(tmp_path) == {"a": pytest.approx(2)}


def test_lines_cut_off_are_left_out(tmp_path: Path) -> None:
    path = note(tmp_path, [(0, 0, A), (30, 1, A), (60, 2, A)])
    path.write_bytes(path.read_bytes()[:-20] + b"\xff\xfe")
    assert used(tmp_path) == {"a": pytest.approx(1)}
    path.write_text("")
    assert read_energy(tmp_path) == ((), ())


def test_an_experiment_without_notes_has_no_energy(tmp_path: Path) -> None:
    assert read_energy(tmp_path) == ((), ())
