"""An Optuna database whose server may be restarted, or out of reach for a while.

Every call is repeated until the server answers again. A repeated call may meet its own work, when
only the answer was lost: attributes are written twice without harm, a trial that was told twice is
read back, and a trial made twice stands down because its trial index is taken (see ``study.py``).

Everything private of Optuna that the studies rely on is named in
``tests/reality_check/studies/test_optuna_internals.py``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, RDBStorage, _CachedStorage
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.storages._rdb.models import TrialModel
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session

from reality_check.studies.retries import Retries
from reality_check.utils.lease import HeartbeatMonitor

#: SQLite locks no rows, so looking whether a trial waits and starting it must be one statement.
_START = sqlalchemy.text(
    "UPDATE trials SET state = 'RUNNING' WHERE trial_id = :trial AND state = 'WAITING'"
)
_HEARTBEATS = sqlalchemy.text(
    "SELECT trials.trial_id, trial_heartbeats.heartbeat FROM trials JOIN trial_heartbeats "
    "ON trials.trial_id = trial_heartbeats.trial_id "
    "WHERE trials.study_id = :study AND trials.state = 'RUNNING'"
)


class NothingWaits(Exception):
    """Other workers were faster: no trial waits to be run any more."""


def _repeated(name: str) -> Any:
    """A call of Optuna's cache, repeated while the server is away."""

    def call(self: PatientStorage, *args: Any, **kwargs: Any) -> Any:
        return self._retries.call(getattr(self._cache, name), *args, **kwargs)

    return call


class PatientStorage(BaseStorage, BaseHeartbeat):
    """Optuna's database behind Optuna's cache; its calls are repeated while the server is away."""

    def __init__(self, database: RDBStorage, retries: Retries) -> None:
        self._database = database
        self._cache = _CachedStorage(database)
        self._retries = retries
        self._first_heartbeats: dict[int, float] = {}
        self._monitor = HeartbeatMonitor()
        self._outages = 0  # after how many of them the monitor began

    @property
    def engine(self) -> sqlalchemy.Engine:
        """SQLAlchemy's way to the database."""
        return self._database.engine

    @property
    def grace_period(self) -> float:
        """Seconds without a heartbeat after which a trial has lost its worker."""
        assert self._database.grace_period is not None
        return float(self._database.grace_period)

    # -- trials -----------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Make a trial that was asked for by its trial index.

        Raises:
            NothingWaits: Optuna wants a trial of its own making, because none waits any more. It
                would have no trial index; where many workers race, most of a study would be such
                trials.
        """
        if template_trial is None:
            raise NothingWaits
        return self._retries.call(self._cache.create_new_trial, study_id, template_trial)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """End or start a trial; an end that was told already, by this very call, is fine."""
        if state is TrialState.RUNNING and self.engine.dialect.name == "sqlite":
            return self._retries.call(self._start, trial_id)
        tries = 0

        def set_once() -> bool:
            nonlocal tries
            tries += 1
            try:
                return self._cache.set_trial_state_values(trial_id, state, values)
            except optuna.exceptions.UpdateFinishedTrialError:
                if tries > 1 and self._was_told(trial_id, state, values):
                    return True
                raise

        return self._retries.call(set_once)

    def _start(self, trial_id: int) -> bool:
        """Start a waiting trial; of several workers one succeeds."""
        with Session(self.engine) as session, session.begin():
            started: bool = session.connection().execute(_START, {"trial": trial_id}).rowcount == 1
            if started:
                # Through Optuna's own table: version 4 keeps local time there, version 5 UTC.
                trial = session.get(TrialModel, trial_id)
                assert trial is not None
                trial.datetime_start = datetime.now()
        return started

    def _was_told(self, trial_id: int, state: TrialState, values: Sequence[float] | None) -> bool:
        trial = self.get_trial(trial_id)
        told = None if trial.values is None else list(trial.values)
        return trial.state is state and told == (None if values is None else list(values))

    set_trial_param = _repeated("set_trial_param")
    set_trial_intermediate_value = _repeated("set_trial_intermediate_value")
    set_trial_user_attr = _repeated("set_trial_user_attr")
    set_trial_system_attr = _repeated("set_trial_system_attr")
    get_trial_id_from_study_id_trial_number = _repeated("get_trial_id_from_study_id_trial_number")
    get_trial = _repeated("get_trial")
    get_all_trials = _repeated("get_all_trials")
    get_best_trial = _repeated("get_best_trial")

    # -- studies ----------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """Make a study; one that exists is refused without a write, which would have to wait."""
        if study_name is not None:
            with contextlib.suppress(KeyError):
                self.get_study_id_from_name(study_name)
                raise optuna.exceptions.DuplicatedStudyError(f"{study_name} exists")
        return self._retries.call(self._cache.create_new_study, directions, study_name)

    delete_study = _repeated("delete_study")
    set_study_user_attr = _repeated("set_study_user_attr")
    set_study_system_attr = _repeated("set_study_system_attr")
    get_study_id_from_name = _repeated("get_study_id_from_name")
    get_study_name_from_id = _repeated("get_study_name_from_id")
    get_study_directions = _repeated("get_study_directions")
    get_study_user_attrs = _repeated("get_study_user_attrs")
    get_study_system_attrs = _repeated("get_study_system_attrs")
    get_all_studies = _repeated("get_all_studies")

    # -- heartbeats -------------------------------------------------------------------------

    def record_heartbeat(self, trial_id: int) -> None:
        """Record a heartbeat, and for how many seconds this worker has been at the trial."""
        self._retries.call(self._cache.record_heartbeat, trial_id)
        now = time.monotonic()
        first = self._first_heartbeats.setdefault(trial_id, now)
        if now > first:
            # Another worker may have ended the trial.
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                self.set_trial_user_attr(trial_id, "seconds", now - first)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Running trials whose heartbeat stands still; Optuna compares clocks, which jump."""
        return self._retries.call(self._stale_trial_ids, study_id)

    def _stale_trial_ids(self, study_id: int) -> list[int]:
        with self.engine.connect() as connection:
            rows = connection.execute(_HEARTBEATS, {"study": study_id}).all()
        if self._outages != self._retries.outages:
            # No worker could record a heartbeat while the server was away: begin to watch again.
            self._outages, self._monitor = self._retries.outages, HeartbeatMonitor()
        heartbeats = {trial: str(heartbeat) for trial, heartbeat in rows}
        return self._monitor.stale(heartbeats, self.grace_period)

    get_heartbeat_interval = _repeated("get_heartbeat_interval")
    get_heartbeat_stale_trial_callback = _repeated("get_heartbeat_stale_trial_callback")
