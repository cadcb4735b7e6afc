"""An Optuna database whose server may be restarted, or out of reach for a while.

Every call is repeated until the server answers again. A repeated call may meet its own work, when
only the answer was lost: attributes are written twice without harm, a trial that has ended so is
read back, and a trial made twice stands down because its trial index is taken (see ``study.py``).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import optuna
import sqlalchemy
from optuna.storages import RDBStorage, _CachedStorage
from optuna.trial import FrozenTrial, TrialState

from reality_check.studies.retries import Retries
from reality_check.utils.lease import HeartbeatMonitor

_LOCK_SQLITE = sqlalchemy.text("BEGIN IMMEDIATE")


class NothingWaits(Exception):
    """Other workers have claimed all waiting trials."""


class _RepeatedDatabase:
    """Optuna's database, whose calls are repeated while the server does not answer."""

    def __init__(
        self, connect: Callable[[], RDBStorage], database: RDBStorage, retries: Retries
    ) -> None:
        self._connect = connect
        self.database = database
        self._retries = retries

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._repeated, name)

    def _repeated(self, name: str, *args: Any, **kwargs: Any) -> Any:
        def call() -> Any:
            if self._retries.is_away and not self.is_sqlite:
                self.database.engine.dispose()
                self.database = self._connect()  # its address may be another by now
            return getattr(self.database, name)(*args, **kwargs)

        return self._retries.call(call)

    @property
    def is_sqlite(self) -> bool:
        return bool(self.database.engine.dialect.name == "sqlite")

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Start or end a trial; of several workers that start it, only one succeeds."""
        if state is not TrialState.RUNNING or not self.is_sqlite:
            ended: bool = self._repeated("set_trial_state_values", trial_id, state, values)
            return ended

        def start() -> bool:
            # SQLite has no locks of rows, so it is locked before Optuna reads the trial's state.
            session = self.database.scoped_session
            try:
                session.execute(_LOCK_SQLITE)
                return self.database.set_trial_state_values(trial_id, state, values)
            finally:
                session.remove()

        return self._retries.call(start)


class PatientStorage(_CachedStorage):
    """Optuna's database behind Optuna's cache; its calls are repeated while the server is away.

    Args:
        connect: opens the database, and opens it again after an outage.
        retries: repeats the calls.
        wait: whether to wait for a server that does not answer at first.
    """

    def __init__(
        self, connect: Callable[[], RDBStorage], retries: Retries, wait: bool = False
    ) -> None:
        self._repeated = _RepeatedDatabase(
            connect, retries.call(connect) if wait else connect(), retries
        )
        super().__init__(cast(RDBStorage, self._repeated))
        self._retries = retries
        self._first_heartbeats: dict[int, float] = {}
        self._monitor = HeartbeatMonitor()
        self._outages = 0  # after how many of them the monitor began

    @property
    def engine(self) -> sqlalchemy.Engine:
        """SQLAlchemy's connections to the database."""
        return self._repeated.database.engine

    @property
    def grace_period(self) -> float:
        """Seconds without a heartbeat after which a trial has lost its worker."""
        assert self._repeated.database.grace_period is not None
        return float(self._repeated.database.grace_period)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Make a trial that was asked for by its trial index.

        Raises:
            NothingWaits: Optuna wants a trial of its own making, because none waits any more. It
                would have no trial index; where many workers race, most of a study would be such
                trials.
        """
        if template_trial is None:
            raise NothingWaits
        return super().create_new_trial(study_id, template_trial)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Start or end a trial; a repeated call, which it has ended before, is no error."""
        try:
            return super().set_trial_state_values(trial_id, state, values)
        except optuna.exceptions.UpdateFinishedTrialError:
            trial = self.get_trial(trial_id)
            given = None if values is None else list(values)
            if trial.state is state and trial.values == given:
                return True
            raise

    def record_heartbeat(self, trial_id: int) -> None:
        """Record for how many seconds this worker has been at the trial."""
        now = time.monotonic()
        first = self._first_heartbeats.setdefault(trial_id, now)
        # Another worker may have ended the trial.
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            self.set_trial_user_attr(trial_id, "seconds", now - first)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Return running trials whose heartbeat has stopped; Optuna compares clocks, which jump."""
        running = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        if self._outages != self._retries.outages:
            # No worker could record a heartbeat while the server was away: begin to watch again.
            self._outages, self._monitor = self._retries.outages, HeartbeatMonitor()
        heartbeats = {
            trial._trial_id: trial.user_attrs["seconds"]
            for trial in running
            if "seconds" in trial.user_attrs
        }
        return self._monitor.stale(heartbeats, self.grace_period)
