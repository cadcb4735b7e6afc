"""One SQLite file for an experiment: record-keeper's global database of several trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record_keeper.db_utils import DBManager

from reality_check.trackers.tracked_trial import TrackedTrial
from reality_check.utils.own_names import own_path


class DatabaseTracker:
    """Writes ``records.db`` into the output folder.

    ``experiment_ids`` names the trainings, such as ``contrastive, trial 3, fold 1``, and all other
    tables have an ``experiment_id``: the groups of each fold's own records, and of the trials
    ``params`` and ``results``.
    """

    def __init__(self, experiment: str, out_dir: Path) -> None:
        self._database = DBManager(str(own_path(out_dir, "records.db")), is_global=True)

    def log(self, trial: TrackedTrial) -> None:
        """Write a trial and its trainings."""
        name = f"{trial.method}, {trial.name}"
        about = {"method": trial.method, "stage": trial.stage, "seconds": trial.seconds}
        tables = {"results": _columns([{**about, **trial.values}])}
        if trial.params:
            tables["params"] = _columns([trial.params])
        self._write(name, tables)
        for number, folder in enumerate(trial.folders, 1):
            self._write(f"{name}, fold {number}", _tables(folder / "records" / "logs.db"))

    def close(self) -> None:
        """All is written."""

    def _write(self, name: str, tables: Mapping[str, dict[str, list[Any]]]) -> None:
        self._forget(name)
        self._database.new_experiment(name)
        for table, columns in tables.items():
            self._database.write(table, columns, name)

    def _forget(self, name: str) -> None:
        if not self._database.experiment_name_has_records(name):
            return
        key = (self._database.get_experiment_id(name),)
        for table in _names(self._database):
            if table != "experiment_ids":
                self._database.execute(f"DELETE FROM [{table}] WHERE experiment_id=?", key)
        self._database.delete_experiment(name)


def _tables(file: Path) -> dict[str, dict[str, list[Any]]]:
    """What is in a fold's own database, by table and column."""
    if not file.exists():
        return {}
    database, tables = DBManager(str(file)), {}
    for table in _names(database):
        rows = database.query(f"SELECT * FROM [{table}] ORDER BY id")
        if rows:
            tables[table] = _columns([dict(row) for row in rows])
            del tables[table]["id"]
    return tables


def _names(database: DBManager) -> list[str]:
    found = database.query("SELECT name FROM sqlite_master WHERE type='table'")
    return [row["name"] for row in found if row["name"] != "sqlite_sequence"]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
