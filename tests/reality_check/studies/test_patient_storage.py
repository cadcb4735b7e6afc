"""Calls of a database whose answers are lost, and workers that race for its trials."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.orm import Session
from support.flaky import Flaky, gone
from support.studies import is_complete, open_study

from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.retries import Retries
from reality_check.studies.storage import open_storage
from reality_check.studies.trial import read_trial
from reality_check.utils.lease import HeartbeatMonitor


@pytest.fixture
def database(tmp_path: Path) -> PatientStorage:
    return open_storage(f"sqlite:///{tmp_path / 'studies.db'}")


class LostAnswer:
    """Calls a method of a database or of its session, and loses its first answer."""

    def __init__(self, cls: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(cls, name)
        self.lost = 0

        def method(storage: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(storage, *arguments, **keywords)
            if not self.lost:
                self.lost += 1
                raise gone()
            return result

        monkeypatch.setattr(cls, name, method)


@pytest.mark.usefixtures("quick")
def test_a_repeated_result_is_accepted_and_another_refused(
    database: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = optuna.create_study(storage=database)
    study.enqueue_trial({})
    trial = study.ask()
    answer = LostAnswer(RDBStorage, "set_trial_state_values", monkeypatch)
    study.tell(trial, 0.5)
    assert answer.lost == 1
    assert [t.state for t in study.trials] == [TrialState.COMPLETE]
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        database.set_trial_state_values(trial._trial_id, TrialState.COMPLETE, [0.6])
    # Nor does a trial that another worker has ended get a result.
    study.enqueue_trial({})
    other = study.ask()
    database.set_trial_state_values(other._trial_id, TrialState.FAIL)
    LostAnswer(RDBStorage, "set_trial_state_values", monkeypatch)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        database.set_trial_state_values(other._trial_id, TrialState.COMPLETE, [0.5])


def test_attributes_of_a_trial_are_written_all_or_none(database: PatientStorage) -> None:
    study = optuna.create_study(storage=database)
    study.enqueue_trial({})
    trial = study.ask()
    with pytest.raises(TypeError, match="not JSON serializable"):
        database.set_trial_user_attrs(trial._trial_id, {"first": 1, "second": object()})
    assert database.get_trial(trial._trial_id).user_attrs == {}
    database.set_trial_user_attrs(trial._trial_id, {"first": 1, "second": [2]})
    assert database.get_trial(trial._trial_id).user_attrs == {"first": 1, "second": [2]}
    database.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
        database.set_trial_user_attrs(trial._trial_id, {"first": 3})


@pytest.mark.usefixtures("quick")
def test_drawn_parameters_are_written_all_or_none(
    database: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = optuna.create_study(storage=database)
    study.enqueue_trial({"a": 1, "b": 0.5})
    trial = study.ask()

    def stored() -> dict[str, Any]:
        return database.get_trial(trial._trial_id).params

    with database.drawing(trial._trial_id):
        assert trial.suggest_int("a", 0, 2) == 1
        assert trial.suggest_float("b", 0.1, 1.0, log=True) == 0.5
        assert stored() == {}
    assert stored() == {"a": 1, "b": 0.5}
    study.enqueue_trial({"a": 2, "b": 0.2})
    trial = study.ask()

    def draw() -> None:
        with database.drawing(trial._trial_id):
            trial.suggest_int("a", 0, 2)
            trial.suggest_categorical("b", [0.2, 0.3])

    with pytest.raises(ValueError, match="different distribution kind"):
        draw()
    assert stored() == {}
    answer = LostAnswer(Session, "commit", monkeypatch)
    trial = optuna.trial.Trial(study, trial._trial_id)
    with database.drawing(trial._trial_id):
        trial.suggest_int("a", 0, 2)
        trial.suggest_float("b", 0.1, 1.0, log=True)
    assert answer.lost == 1
    assert stored() == {"a": 2, "b": 0.2}


@pytest.mark.usefixtures("quick")
def test_a_trial_made_twice_leaves_one_complete_trial_an_index(
    database: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = open_study(database, "one", 2, 0, fixed=[{"a": 1}] * 2)
    original, lost = PatientStorage.create_new_trial, []

    def twice(storage: PatientStorage, *arguments: Any, **keywords: Any) -> Any:
        if not lost:
            lost.append(original(storage, *arguments, **keywords))  # the answer that never came
        return original(storage, *arguments, **keywords)

    monkeypatch.setattr(PatientStorage, "create_new_trial", twice)
    from reality_check.studies.trial import TrialResult

    for _ in range(5):
        stage.work_once(lambda attempt: TrialResult(0.5))
    assert lost
    assert is_complete(stage)
    complete = [t for t in stage.trials() if t.state == "complete"]
    assert sorted(t.trial_index for t in complete) == [0, 1]


class Elsewhere:
    """A server's database that goes away for some calls, and then has another address."""

    def __init__(self, outages: int) -> None:
        self.engine = SimpleNamespace(
            dialect=SimpleNamespace(name="postgresql"), dispose=lambda: None
        )
        self.get_all_studies = Flaky(outages, gone())
        self.scoped_session = mock.Mock(side_effect=[*[gone()] * outages, mock.Mock()])


@pytest.mark.usefixtures("quick")
def test_after_an_outage_the_database_is_opened_at_its_present_address() -> None:
    addresses = [Elsewhere(1), Elsewhere(1), Elsewhere(0), Elsewhere(0)]
    opened = list(addresses)
    storage = PatientStorage(lambda: opened.pop(0), Retries("postgresql"))  # type: ignore[arg-type, return-value]
    assert storage.get_all_studies() == "done"
    assert storage.get_all_studies() == "done"
    assert [one.get_all_studies.calls for one in addresses] == [1, 1, 2, 0]
    assert storage.engine is addresses[2].engine


@pytest.mark.usefixtures("quick")
def test_attributes_too_are_written_at_the_present_address() -> None:
    addresses = [Elsewhere(9), Elsewhere(0)]
    opened = list(addresses)
    storage = PatientStorage(lambda: opened.pop(0), Retries("postgresql"))  # type: ignore[arg-type, return-value]
    storage.set_trial_user_attrs(1, {})
    assert [one.scoped_session.call_count for one in addresses] == [1, 1]
    assert storage.engine is addresses[1].engine


@pytest.mark.usefixtures("quick")
def test_workers_that_cannot_reach_the_server_are_not_lost(database: PatientStorage) -> None:
    """It is away for longer than the grace time; then it answers this worker first."""
    now = [0.0]
    database._monitor = HeartbeatMonitor(lambda: now[0])
    stage = open_study(database, "one", 2, 0, fixed=[{}] * 2)
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    trial = stage.study.ask()
    trial.set_user_attr("worker", {"host": "elsewhere/1", "pid": 1, "started": 1})
    database.record_heartbeat(trial._trial_id)

    def is_lost(seconds: float) -> bool:
        now[0] += seconds
        stage.release_lost()
        return stage.trials()[0].state == "failed"

    assert not is_lost(0.0)
    assert not is_lost(200.0)
    database._retries.call(Flaky(3, gone()))
    assert not is_lost(200.0)
    database._monitor = HeartbeatMonitor(lambda: now[0])
    assert not is_lost(0.0)
    assert not is_lost(200.0)
    assert is_lost(200.0)


def test_a_waiting_trial_is_started_by_one_worker_only(tmp_path: Path) -> None:
    """SQLite has no locks of rows: whoever looks before it writes finds what another has too."""
    url, workers, rounds = f"sqlite:///{tmp_path}/studies.db", 4, 40
    storages = [open_storage(url) for _ in range(workers)]
    study = optuna.create_study(storage=storages[0])
    for _ in range(rounds):
        study.enqueue_trial({})
    trials = [trial._trial_id for trial in study.get_trials(deepcopy=False)]
    together = threading.Barrier(workers)

    def start(storage: Any) -> list[bool]:
        started = []
        for trial in trials:
            together.wait()
            started.append(storage.set_trial_state_values(trial, TrialState.RUNNING))
        return started

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        started = list(pool.map(start, storages))
    assert [sum(each) for each in zip(*started, strict=True)] == [1] * rounds
    stored = [storages[0].get_trial(trial) for trial in trials]
    assert all(trial.state is TrialState.RUNNING and trial.datetime_start for trial in stored)
    assert not storages[0].set_trial_state_values(trials[0], TrialState.RUNNING)


def test_a_late_heartbeat_changes_no_duration(database: PatientStorage) -> None:
    study = optuna.create_study(storage=database)
    study.enqueue_trial({})
    trial = study.ask()._trial_id
    database.record_heartbeat(trial)
    assert read_trial(database.get_trial(trial)).seconds == 0.0
    database.set_trial_user_attr(trial, "seconds", 1800.0)
    database.record_heartbeat(trial)
    assert read_trial(database.get_trial(trial)).seconds == 1800.0


def test_a_read_that_ctrl_c_interrupts_leaves_no_lock(tmp_path: Path) -> None:
    file = tmp_path / "studies.db"
    storage = open_storage(f"sqlite:///{file}")
    study = optuna.create_study(storage=storage)
    for _ in range(3):
        study.enqueue_trial({})
    pressed: list[str] = []

    def press(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        if "FROM trials" in statement and not pressed:  # its rows are not all read yet
            pressed.append(statement)
            signal.raise_signal(signal.SIGINT)

    event.listen(storage.engine, "after_cursor_execute", press)
    # While the exception is at hand, as while the trials of the workers are released.
    with pytest.raises(KeyboardInterrupt):
        storage.get_all_trials(study._study_id, deepcopy=False)
    assert pressed
    with contextlib.closing(sqlite3.connect(file, timeout=0)) as other:
        other.execute("UPDATE studies SET study_name = 'another'")
        other.commit()
