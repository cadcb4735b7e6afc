from __future__ import annotations

import csv
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reality_check.training.records import FoldRecords


def row(step: int, loss: float | None) -> dict[str, Any]:
    return {"epoch": step, "step": step, "phase": 1, "loss": loss, "map": 0.1 * max(step, 0)}


def read(folder: Path) -> tuple[list[dict[str, str]], list[tuple[Any, ...]]]:
    file = next(folder.rglob("curves.csv"))
    with file.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    with sqlite3.connect(next(folder.rglob("*.db"))) as database:
        table = database.execute("SELECT step, map FROM curves ORDER BY step").fetchall()
    return rows, table


def test_rows_land_in_csv_and_sqlite_once_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    history = [row(-1, None), row(0, None), row(2, 1.5)]
    records = FoldRecords(folder, [])
    for line in history:
        records.append(line)
    records.append(row(4, 1.25))  # lost: the checkpoint of this evaluation was not written
    records.close()
    again = FoldRecords(folder, history)
    again.append(row(4, 1.0))
    again.append(row(6, 0.5))
    again.close()
    rows, table = read(folder)
    assert [int(float(line["step"])) for line in rows] == [-1, 0, 2, 4, 6]
    assert [float(line["loss"]) for line in rows[2:]] == [1.5, 1.0, 0.5]
    assert [(int(step), round(value, 6)) for step, value in table] == [
        (-1, 0.0),
        (0, 0.0),
        (2, 0.2),
        (4, 0.4),
        (6, 0.6),
    ]


@pytest.mark.parametrize("stays", [".nfs000000000123", "logs.db"])
def test_what_another_process_has_open_is_not_read_as_records(
    tmp_path: Path, stays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS, such files get another name, and their folders cannot be removed."""
    folder = tmp_path / "records"
    records = FoldRecords(folder, [row(-1, None), row(0, None), row(2, 1.5), row(4, 1.0)])
    records.close()
    rmtree = shutil.rmtree

    def leave_some(path: Path, ignore_errors: bool) -> None:
        old = next(folder.rglob("*.db")).read_bytes()
        rmtree(path)
        for place in (folder, folder / "tensorboard"):
            place.mkdir()
            (place / stays).write_bytes(old)

    monkeypatch.setattr(shutil, "rmtree", leave_some)
    again = FoldRecords(folder, [row(-1, None), row(0, None)])
    again.append(row(2, 1.0))
    again.close()
    rows, table = read(folder)
    assert [int(float(line["step"])) for line in rows] == [-1, 0, 2]
    assert [int(step) for step, _ in table] == [-1, 0, 2]


def test_records_that_cannot_be_removed_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FoldRecords(tmp_path / "records", [row(0, None)]).close()

    def refuse(path: Path) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError, match="not yours"):
        FoldRecords(tmp_path / "records", [])


def test_a_run_without_evaluations_has_empty_records(tmp_path: Path) -> None:
    FoldRecords(tmp_path / "records", []).close()
    assert list((tmp_path / "records").rglob("*.csv")) == []
