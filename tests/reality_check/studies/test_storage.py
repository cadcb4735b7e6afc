"""Storages by URL."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import tempfile
import threading
from pathlib import Path
from unittest.mock import Mock

import optuna
import pytest
import sqlalchemy
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import URL
from sqlalchemy.event import listen
from support.examples import examples
from support.paths import TINY
from support.studies import open_study

from reality_check.config import load_experiment
from reality_check.launch.open_folder import _resolve_for_folder
from reality_check.launch.worker import work
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.recorded_experiment import read_experiment, storage_url
from reality_check.studies.storage import (
    absolute_url,
    open_storage,
    same_database,
    storage_file,
)
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import USAGE


def test_another_way_to_the_same_database() -> None:
    here = "postgresql+psycopg://tom:secret@host/db"
    assert same_database(here, "postgresql+psycopg://ann@localhost:6000/db?sslmode=require")
    assert not same_database(here, "postgresql+psycopg://tom@host/other")
    assert not same_database(here, "mysql+pymysql://tom@host/db")
    assert not same_database(here, None)
    assert not same_database("sqlite:////a/db", "sqlite:////b/db")


def test_folders_of_all_names_have_databases_of_their_own(tmp_path: Path) -> None:
    """Also those that a URL, SQLite or a shell would read as something else."""
    made, alone = tmp_path / "made.db", load_experiment(TINY)
    open_storage(URL.create("sqlite", database=str(made)))

    @examples(10)
    @given(
        st.lists(
            st.text("?#%41&=;:@'\"\n~-+ {\\eé\u0301\udcff", min_size=1, max_size=9),
            min_size=2,
            max_size=2,
            unique=True,
        )
    )
    @example(["file:x?mode=ro", "file:x?mode=rwc"])
    @example([":memory:", "%3Amemory%3A"])
    def own(names: list[str]) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as root:
            folders = [Path(root, name) for name in names]
            for folder in folders:
                folder.mkdir()
                shutil.copy(made, folder / "studies.db")  # making its tables takes 0.1 s
                storage = open_storage(storage_url(alone, folder))
                assert optuna.get_all_study_names(storage=storage) == []
                optuna.create_study(storage=storage, study_name="s")
            assert sorted(os.listdir(root)) == sorted(names)

    own()


@pytest.mark.parametrize(
    ("given_url", "whole"),
    [
        ("sqlite:///rel.db?timeout=5", "sqlite:///{}/rel.db?timeout=5"),
        ("sqlite:////abs/a%41.db", "sqlite:////abs/a%41.db"),
        ("postgresql+psycopg://tom:pw@host/db", "postgresql+psycopg://tom:pw@host/db"),
    ],
)
def test_a_path_from_the_current_folder_is_made_whole(
    given_url: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_url(given_url) == whole.format(tmp_path)
    assert same_database(given_url, whole.format(tmp_path))


def test_what_is_locked_is_the_whole_path_and_readers_make_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "a?b", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(folder)
    given_it = load_experiment(TINY, ["storage=sqlite:///rel.db"])
    locked, _ = _resolve_for_folder(given_it, {"dataset": "1"}, folder / "out")
    assert locked.storage is not None
    assert storage_file(locked.storage) == folder / "rel.db"
    open_storage(locked.storage)
    lock_experiment(locked, folder / "out")
    monkeypatch.chdir(elsewhere)
    read_experiment(folder / "out")
    url = "sqlite:///rel.db"
    lock_experiment(locked.model_copy(update={"storage": url}), folder / "out")
    with pytest.raises(UsageError, match=f"is not there: {elsewhere}/rel"):
        read_experiment(folder / "out")
    assert work(folder / "out", 0, storage=url) == USAGE
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"])
def test_a_database_that_workers_cannot_share_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="does not name a file"):
        open_storage(url)


def test_several_open_a_new_database_at_once(tmp_path: Path) -> None:
    """Each of them finds no tables and makes them."""
    url, together = f"sqlite:///{tmp_path / 'studies.db'}", threading.Barrier(4)

    def enter(number: int) -> None:
        together.wait()
        optuna.create_study(storage=open_storage(url), study_name=str(number))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(4)))
    assert sorted(optuna.get_all_study_names(storage=url)) == ["0", "1", "2", "3"]


def test_whoever_meets_the_makers_of_tables_waits_longer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    error = sqlalchemy.exc.OperationalError("", {}, Exception("table already exists"))
    monkeypatch.setattr("reality_check.studies.storage._open_database", Mock(side_effect=error))
    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("random.SystemRandom.uniform", lambda self, low, high: low)
    with pytest.raises(UsageError, match="already exists"):
        open_storage("sqlite:///studies.db")
    assert pauses == [0.25, 0.5, 1.0, 2.0]


def test_tables_of_a_version_of_optuna_that_fits_no_more_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    storage = open_storage(url)
    with storage.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE version_info SET library_version = '2.0.0'"))
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = 'v2.6.0.a'"))
    with pytest.raises(UsageError, match=r"no longer compatible .* optuna storage upgrade"):
        open_storage(url)


def test_a_study_that_exists_is_opened_without_a_write(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    open_study(open_storage(url), "s", 1, 0)
    storage = open_storage(url)
    statements: list[str] = []
    listen(storage.engine, "before_cursor_execute", lambda *seen: statements.append(seen[2]))
    open_study(storage, "s", 1, 0)
    assert statements
    assert all(statement.startswith("SELECT") for statement in statements)


@pytest.mark.parametrize("url", ["journal:///a/studies.log", "journal://studies.log"])
def test_a_journal_of_an_earlier_version_is_one_sentence(url: str, tmp_path: Path) -> None:
    experiment = load_experiment(TINY, [f"storage={url}"])
    lock_experiment(experiment.model_copy(update={"code": {"dataset": "1"}}), tmp_path)
    with pytest.raises(UsageError, match="journal files are no longer") as caught:
        read_experiment(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_plain_experiment_has_no_password(tiny: Path) -> None:
    made = load_experiment(tiny, ["storage=postgresql+psycopg://tom:secret@host/db"])
    assert made.storage is not None
    assert "secret" in made.storage
    assert made.plain()["storage"] == "postgresql+psycopg://tom@host/db"
