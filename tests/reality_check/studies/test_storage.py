"""Storages by URL."""

from __future__ import annotations

import concurrent.futures
import threading
from pathlib import Path

import optuna
import pytest

from reality_check.config import load_experiment
from reality_check.studies.storage import (
    open_storage,
    same_database,
    sole_worker,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Heartbeat of storage"),
]


def test_another_way_to_the_same_database() -> None:
    here = "postgresql+psycopg://tom:secret@host/db"
    assert same_database(here, "postgresql+psycopg://ann@localhost:6000/db?sslmode=require")
    assert not same_database(here, "postgresql+psycopg://tom@host/other")
    assert not same_database(here, "mysql+pymysql://tom@host/db")
    assert not same_database(here, None)
    assert not same_database("sqlite:////a/db", "sqlite:////b/db")


def test_several_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Each of them finds no tables and makes them."""
    url, together = f"sqlite:///{tmp_path / 'studies.db'}", threading.Barrier(4)

    def enter(number: int) -> None:
        together.wait()
        optuna.create_study(storage=open_storage(url), study_name=str(number))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(4)))
    assert sorted(optuna.get_all_study_names(storage=url)) == ["0", "1", "2", "3"]


def test_a_database_serves_any_number_of_workers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    with sole_worker(url) as alone, sole_worker(url):
        assert not alone
        assert list(tmp_path.iterdir()) == []


def test_the_plain_experiment_has_no_password(tiny: Path) -> None:
    made = load_experiment(tiny, ["storage=postgresql+psycopg://tom:secret@host/db"])
    assert made.storage is not None
    assert "secret" in made.storage
    assert made.plain()["storage"] == "postgresql+psycopg://tom@host/db"
