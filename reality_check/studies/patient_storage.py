"""An Optuna database whose server may be restarted or unreachable for a while.

Every call is repeated until the server answers again. If only the answer was lost, the first call
has already taken effect: attributes are then written again without harm, the state of a trial that
has ended is read back, and a duplicate trial stands down because its index is taken (``study.py``).
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage, _CachedStorage
from optuna.storages._rdb.models import TrialUserAttributeModel
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.orm import Session

from reality_check.studies.retries import Retries
from reality_check.studies.trial import HEARTBEAT
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
        # Python calls this for every method of the database that is not defined below.
        return functools.partial(self._repeated, name)

    def _repeated(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the database; see :meth:`_use`."""
        return self._use(lambda database: getattr(database, name)(*args, **kwargs))

    def _use(self, use: Callable[[RDBStorage], Any]) -> Any:
        """Do something with the database; while it does not answer, reconnect and do it again."""

        def call() -> Any:
            if self._retries.is_away and not self.is_sqlite:
                self.database.engine.dispose()
                self.database = self._connect()  # its address may have changed
            return use(self.database)

        return self._retries.call(call)

    @property
    def is_sqlite(self) -> bool:
        return bool(self.database.engine.dialect.name == "sqlite")

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Start or end a trial; if several workers start it, only one succeeds."""
        if state is not TrialState.RUNNING or not self.is_sqlite:
            return bool(self._repeated("set_trial_state_values", trial_id, state, values))

        def start() -> bool:
            # SQLite has no row locks: lock the database before Optuna reads the state.
            session = self.database.scoped_session
            try:
                session.execute(_LOCK_SQLITE)
                return self.database.set_trial_state_values(trial_id, state, values)
            finally:
                session.remove()

        return self._retries.call(start)

    def write_together(self, change: Callable[[RDBStorage, Session], None]) -> None:
        """Change several things in one transaction; Optuna has one for each."""

        def write(database: RDBStorage) -> None:
            # The session ends in any case, and takes back what was not committed.
            with contextlib.closing(database.scoped_session()) as session:
                change(database, session)
                session.commit()

        self._use(write)


class PatientStorage(_CachedStorage):
    """Optuna's cached database, whose calls are repeated while the server does not answer.

    Args:
        connect: a function that opens the database; called again after an outage.
        retries: the object that repeats the calls.
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
        self._first_heartbeats: dict[int, float] = {}  # their times by trial id
        self._monitor = HeartbeatMonitor()
        self._outages = 0  # number of outages when the monitor was created
        self._drawn: list[tuple[str, float, BaseDistribution]] | None = None  # not written yet

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
        """Create a trial from a template that has a trial index.

        Raises:
            NothingWaits: there is no template, since Optuna found no waiting trial. The new trial
                would have no trial index, and with many workers most trials would be like that.
        """
        if template_trial is None:
            raise NothingWaits
        return super().create_new_trial(study_id, template_trial)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Start or end a trial; a repeated call for a trial that has ended is no error."""
        try:
            return super().set_trial_state_values(trial_id, state, values)
        except optuna.exceptions.UpdateFinishedTrialError:
            # The first call may have succeeded, and only its answer was lost.
            trial = self.get_trial(trial_id)
            expected = None if values is None else list(values)
            if trial.state is state and trial.values == expected:
                return True
            raise

    def set_trial_user_attrs(self, trial_id: int, attributes: Mapping[str, Any]) -> None:
        """Write attributes of a running trial: all of them, or none."""

        def change(database: RDBStorage, session: Session) -> None:
            for key, value in attributes.items():
                database._set_trial_attr_without_commit(
                    session, TrialUserAttributeModel, trial_id, key, value
                )

        self._repeated.write_together(change)

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        """Write a parameter of a running trial, or keep it for the end of :meth:`drawing`."""
        if self._drawn is None:
            super().set_trial_param(trial_id, param_name, param_value_internal, distribution)
        else:
            self._drawn.append((param_name, param_value_internal, distribution))

    @contextlib.contextmanager
    def drawing(self, trial_id: int) -> Iterator[None]:
        """Write the parameters of a trial that are drawn within the block: all of them, or none."""
        drawn = self._drawn = []
        try:
            yield
        finally:
            self._drawn = None
        known = self._studies[self._trial_id_to_study_id_and_number[trial_id][0]].param_distribution

        def change(database: RDBStorage, session: Session) -> None:
            for name, value, distribution in drawn:
                database._set_trial_param_without_commit(
                    session, trial_id, name, value, distribution, known.get(name)
                )

        # They are there if only the answer to the first call was lost.
        with contextlib.suppress(sqlalchemy.exc.IntegrityError):
            self._repeated.write_together(change)
        for name, _, distribution in drawn:
            known.setdefault(name, distribution)

    def record_heartbeat(self, trial_id: int) -> None:
        """Record for how many seconds this worker has been running the trial."""
        now = time.monotonic()
        first = self._first_heartbeats.setdefault(trial_id, now)
        # Another worker may have ended the trial.
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            # Not "seconds": this thread may be late, after the end of the trial has set these.
            self.set_trial_user_attr(trial_id, HEARTBEAT, now - first)

    def stale(self, heartbeats: Mapping[int, float]) -> list[int]:
        """Return the ids of trials whose heartbeat has stopped.

        Optuna's own method compares clocks of machines, which may jump.

        Args:
            heartbeats: the seconds that :meth:`record_heartbeat` wrote last, by the ids of the
                running trials.
        """
        if self._outages != self._retries.outages:
            # No worker could record a heartbeat during the outage, so start watching again.
            self._outages, self._monitor = self._retries.outages, HeartbeatMonitor()
        return self._monitor.stale(heartbeats, self.grace_period)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Return none when Optuna begins a trial, since ``Study.release_lost`` has ended them."""
        return []
