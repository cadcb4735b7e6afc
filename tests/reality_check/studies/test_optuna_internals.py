"""What the studies rely on of Optuna beyond its public interface, named once.

Optuna may change it in any version. When this fails, adapt ``studies/patient_storage.py``,
``studies/storage.py`` and ``studies/study.py``, or narrow the versions in ``setup.cfg``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy import inspect as columns_of

from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.storage import KnownDatabase, open_storage

#: Private classes and methods, with the arguments that are handed to them.
SIGNATURES = {
    "optuna.storages._CachedStorage": ["backend"],
    "optuna.storages._heartbeat.BaseHeartbeat.record_heartbeat": ["self", "trial_id"],
    "optuna.storages._heartbeat.BaseHeartbeat._get_stale_trial_ids": ["self", "study_id"],
    "optuna.storages._heartbeat.BaseHeartbeat.get_heartbeat_interval": ["self"],
    "optuna.storages._heartbeat.BaseHeartbeat.get_heartbeat_stale_trial_callback": ["self"],
}
#: Private attributes and classes that are no more than named.
NAMES = [
    "optuna.storages._rdb.models.TrialModel.trial_id",
    "optuna.storages._rdb.models.TrialModel.datetime_start",
    "optuna.study._frozen.FrozenStudy",
]
#: The tables that are read and written with SQL of our own.
COLUMNS = {
    "alembic_version": set(),
    "version_info": {"library_version"},
    "trials": {"trial_id", "study_id", "state"},
    "trial_heartbeats": {"trial_id", "heartbeat"},
    "study_user_attributes": {"value_json"},
    "trial_user_attributes": {"value_json"},
}


def find(name: str) -> Any:
    """What a dotted name stands for; raises ImportError or AttributeError where it is gone."""
    thing: Any = optuna
    done = "optuna"
    for part in name.split(".")[1:]:
        done = f"{done}.{part}"
        if inspect.ismodule(thing) and not hasattr(thing, part):
            __import__(done)
        thing = getattr(thing, part)
    return thing


def changes() -> list[str]:
    """Everything that Optuna has changed, a phrase each."""
    seen = []
    for name, arguments in SIGNATURES.items():
        try:
            got = list(inspect.signature(find(name)).parameters)
        except (ImportError, AttributeError):
            seen.append(f"{name} is gone")
            continue
        if got != arguments:
            seen.append(f"{name} takes {got}, not {arguments}")
    for name in NAMES:
        try:
            find(name)
        except (ImportError, AttributeError):
            seen.append(f"{name} is gone")
    return seen


def require_unchanged(seen: list[str]) -> None:
    if seen:
        pytest.fail(f"Optuna {optuna.__version__}: {'; '.join(seen)}. {__doc__}", pytrace=False)


def test_the_private_parts_of_optuna_that_the_studies_rely_on_are_there() -> None:
    require_unchanged(changes())


def test_one_message_names_all_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: object, study_id: int, grace: int) -> None: ...

    heartbeat = find("optuna.storages._heartbeat.BaseHeartbeat")
    monkeypatch.setattr(heartbeat, "_get_stale_trial_ids", other)
    monkeypatch.delattr(find("optuna.storages._rdb.models"), "TrialModel")
    with pytest.raises(pytest.fail.Exception) as failed:
        require_unchanged(changes())
    message = str(failed.value)
    assert "BaseHeartbeat._get_stale_trial_ids takes ['self', 'study_id', 'grace']" in message
    assert "optuna.storages._rdb.models.TrialModel.trial_id is gone" in message
    assert "narrow the versions" in message


def test_every_call_of_optunas_cache_is_repeated() -> None:
    """A method that Optuna's cache has, and ours would inherit, must not go past the retries."""
    cache = vars(find("optuna.storages._CachedStorage"))
    interface = {*dir(BaseStorage), *dir(find("optuna.storages._heartbeat.BaseHeartbeat"))}
    calls = {name for name in cache if name in interface and not name.startswith("__")}
    own = {name for name in calls if not name.startswith("_abc")}
    assert own - set(vars(PatientStorage)) == set()
    assert "get_all_trials" in own


def test_the_tables_have_the_columns_that_our_sql_names(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'studies.db'}")
    assert isinstance(storage, PatientStorage)
    tables = columns_of(storage.engine)
    lacking = [
        f"the table {table} has no column {column}"
        for table, columns in COLUMNS.items()
        for column in sorted(columns - {each["name"] for each in tables.get_columns(table)})
    ]
    require_unchanged(lacking)


def test_a_database_that_is_known_has_all_that_optunas_own_has(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    lacking = vars(RDBStorage(url)).keys() - vars(KnownDatabase(url, {})).keys()
    require_unchanged([f"RDBStorage has {name}" for name in lacking - {"_version_manager"}])


def test_trials_have_the_number_by_which_storages_know_them(tmp_path: Path) -> None:
    study = optuna.create_study(storage=open_storage(f"sqlite:///{tmp_path / 'studies.db'}"))
    study.enqueue_trial({})
    trial = study.ask()
    (frozen,) = study.trials
    if getattr(trial, "_trial_id", None) != getattr(frozen, "_trial_id", 0):
        require_unchanged(["optuna.Trial._trial_id or FrozenTrial._trial_id is gone"])
    assert study._storage.get_trial(trial._trial_id).number == 0


def test_a_trial_that_was_ended_elsewhere_is_refused_in_the_words_that_we_know() -> None:
    """See ``was_taken_away`` in ``studies/study.py``."""
    study = optuna.create_study()
    trial = study.ask()
    study.tell(trial, 0.5)
    with pytest.raises(ValueError, match="Cannot tell a"):
        study.tell(trial, 0.5)
