"""The storage of an experiment, by URL: SQLite, PostgreSQL, MySQL or MariaDB, or a journal file.

A database server may be restarted, or out of reach for a while: once it is opened, every call is
repeated until it answers again. A repeated call may find its own work done, when only the answer
was lost: attributes are written twice without harm, a trial told twice is looked at, and a trial
made twice stands down because its trial index is taken (see ``search.py``).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb.models import TrialModel
from optuna.trial import TrialState
from sqlalchemy.orm import Session

from reality_check.studies.journal import _journal_path, _open_journal
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.files import try_lock
from reality_check.utils.lease import HeartbeatMonitor
from reality_check.utils.passwords import PASSWORD_VARIABLE, password_for, without_password

__all__ = [
    "BaseStorage",
    "NothingWaits",
    "PatientStorage",
    "StorageLost",
    "check_workers",
    "holds_study",
    "is_passing",
    "kind_of",
    "open_storage",
    "same_database",
    "sole_worker",
]

#: Seconds between a worker's signs of life, and after how many without one it counts as lost.
HEARTBEAT_INTERVAL, HEARTBEAT_GRACE = 60, 300
#: For how many seconds a storage that has gone away is asked again, and the longest pause.
PATIENCE, LONGEST_PAUSE = 1800.0, 15.0
#: After how many seconds the server ends a transaction whose worker stands still in its middle.
STANDSTILL = 60

#: How long a driver waits for a server that does not answer, so that the next try can begin.
_CONNECT: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": 60},
    "postgresql": {
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    },
    "mysql": {"connect_timeout": 10},
    "mariadb": {"connect_timeout": 10},
}
#: How that is said to the server; MySQL gives up waiting for a lock by itself, and we ask again.
_LIMIT = {
    "postgresql": "SET idle_in_transaction_session_timeout = '{}s'",
    "mysql": "SET SESSION idle_transaction_timeout = {}",
    "mariadb": "SET SESSION idle_transaction_timeout = {}",
}
#: SQLite locks no rows, so looking whether a trial waits and starting it must be one statement.
_START = sqlalchemy.text(
    "UPDATE trials SET state = 'RUNNING' WHERE trial_id = :trial AND state = 'WAITING'"
)
_DRIVERS = {
    "postgresql": "pip install 'pml-extensions[postgres]' and write postgresql+psycopg://...",
    "mysql": "pip install 'pml-extensions[mysql]' and write mysql+pymysql://...",
    "mariadb": "pip install 'pml-extensions[mysql]' and write mysql+pymysql://...",
}


class NothingWaits(Exception):
    """Other workers were faster: no trial waits to be run any more."""


class StorageLost(WorkFailed):
    """The storage has been silent for longer than anybody wants to wait."""


def kind_of(url: str) -> str:
    """``sqlite``, ``postgresql``, ``mysql``, ``journal``, ...: the scheme without its driver."""
    return url.partition("://")[0].partition("+")[0]


def open_storage(url: str, wait: bool = False) -> BaseStorage:
    """Open the storage of an experiment; databases get heartbeats.

    Args:
        url: of a database, or ``journal:///path/file.log`` for a single worker. A password is
            taken from it, or from the environment variable ``REALITY_CHECK_STORAGE_PASSWORD``.
        wait: whether to wait for a server that does not answer, as workers do.

    Raises:
        UsageError: the URL is not one of a storage, or the storage does not answer.
        StorageLost: it was waited for in vain.
    """
    if "://" not in url:
        raise UsageError(
            "storage must be the URL of a database, such as postgresql+psycopg://user@host/name; "
            "leave it out for studies.db in the output folder."
        )
    bare, password = password_for(url)
    try:
        if kind_of(bare) == "journal":
            return _open_journal(bare)
        make = functools.partial(_open_with_others, bare, password)
        return _Patience(bare).insist(make) if wait else make()
    except (UsageError, StorageLost):
        raise
    except Exception as error:
        raise UsageError(_why_not_opened(bare, password, error)) from None


def check_workers(url: str | None, workers: int) -> None:
    """Refuse several workers on a journal file.

    Raises:
        UsageError: there are more workers than the storage serves.
    """
    if url is not None and kind_of(url) == "journal" and workers > 1:
        raise UsageError(
            f"a journal file serves one worker, got {workers}: it cannot tell which of several is "
            "lost; leave storage out (SQLite), or name a database server."
        )


@contextlib.contextmanager
def sole_worker(url: str) -> Iterator[bool]:
    """Be the one worker that a journal file serves; a database serves any number.

    Yields:
        Whether there is no other worker: then all trials that run have lost theirs.

    Raises:
        UsageError: another worker works on that file.
    """
    if kind_of(url) != "journal":
        yield False
        return
    path = _journal_path(url)
    with try_lock(path.with_name(f"{path.name}.worker")) as holder:
        if holder is not None:
            raise UsageError(
                f"the journal file {path} serves one worker, which is {holder}: it cannot tell "
                "which of several is lost; wait for that one, or begin anew with a database server "
                "as storage."
            )
        yield True


def holds_study(storage: BaseStorage, name: str) -> bool:
    """Whether the storage has a study of that name."""
    try:
        storage.get_study_id_from_name(name)
    except KeyError:
        return False
    return True


def same_database(one: str | None, other: str | None) -> bool:
    """Whether two URLs may lead to one database: only host, user or password differ.

    A tunnel has another host and port than the server behind it.
    """
    if one is None or other is None or kind_of(one) in ("sqlite", "journal"):
        return False
    names = [without_password(url).partition("://")[2].partition("/")[2] for url in (one, other)]
    first, second = (name.partition("?")[0] for name in names)
    return kind_of(one) == kind_of(other) and first == second


# -- databases -----------------------------------------------------------------------------------


def _open_with_others(url: str, password: str | None) -> PatientStorage:
    """Open a database, also while another process makes its tables."""
    for pause in (0.5, 1.0, 2.0, 4.0):
        try:
            return _open_database(url, password)
        except sqlalchemy.exc.DBAPIError as error:
            if not re.search(r"already exists|unique|duplicate", str(error.orig), re.IGNORECASE):
                raise
        time.sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
    return _open_database(url, password)


def _open_database(url: str, password: str | None) -> PatientStorage:
    kind = kind_of(url)
    # Not in the URL: Optuna and SQLAlchemy could show it.
    connect = {**_CONNECT.get(kind, {}), **({} if password is None else {"password": password})}
    engine: dict[str, Any] = {"connect_args": connect}
    if kind != "sqlite":
        # A connection that a restart has closed is replaced before it is used.
        engine["pool_pre_ping"] = True
        # The heartbeats' connection is closed after each of them: servers allow some 100 in all.
        engine |= {"pool_size": 1, "max_overflow": 4}
    if kind in _LIMIT:
        engine["pool_events"] = [(functools.partial(_limit_standstill, kind), "connect")]
    storage = PatientStorage(
        url=url.replace("{", "{{").replace("}", "}}"),
        engine_kwargs=engine,
        heartbeat_interval=HEARTBEAT_INTERVAL,
        grace_period=HEARTBEAT_GRACE,
    )
    if kind in ("mysql", "mariadb"):
        _widen_texts(storage.engine)
    return storage


def _limit_standstill(kind: str, connection: Any, record: object) -> None:
    """A worker that is paused while it holds a lock must not hold all the others up."""
    # MySQL, other than MariaDB, does not know this limit.
    with contextlib.suppress(Exception), contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(_LIMIT[kind].format(STANDSTILL))
    connection.commit()


def _widen_texts(engine: sqlalchemy.Engine) -> None:
    """MySQL's TEXT ends at 64 kB, and the curves of a long training are longer."""
    narrow = sqlalchemy.text(
        "SELECT table_name, column_name FROM information_schema.columns WHERE "
        "table_schema = DATABASE() AND column_name = 'value_json' AND data_type = 'text'"
    )
    with engine.begin() as connection:
        for table, column in connection.execute(narrow).all():
            change = f"ALTER TABLE {table} MODIFY {column} MEDIUMTEXT"
            connection.execute(sqlalchemy.text(change))


class PatientStorage(RDBStorage):
    """A database whose calls are repeated while the server is away."""

    @functools.cached_property
    def _patience(self) -> _Patience:
        return _Patience(self.url)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """End or start a trial; an end that was told already, by this very call, is fine."""
        if state is TrialState.RUNNING and kind_of(self.url) == "sqlite":
            return bool(self._patience.insist(functools.partial(self._start, trial_id)))
        tell = super().set_trial_state_values
        tries = 0

        def once() -> bool:
            nonlocal tries
            tries += 1
            try:
                return tell(trial_id, state, values)
            except optuna.exceptions.UpdateFinishedTrialError:
                if tries > 1 and self._was_told(trial_id, state, values):
                    return True
                raise

        return self._patience.insist(once)

    def _create_new_trial(self, study_id: int, template_trial: Any = None) -> Any:
        """Make a trial that was asked for by its trial index.

        Raises:
            NothingWaits: Optuna wants a trial of its own making, because none waits any more. It
                would have no trial index; where many workers race, most of a study would be such
                trials.
        """
        if template_trial is None:
            raise NothingWaits
        make = super()._create_new_trial
        return self._patience.insist(lambda: make(study_id, template_trial))

    def _start(self, trial_id: int) -> bool:
        """Start a waiting trial; of several workers one succeeds."""
        with Session(self.engine) as session, session.begin():
            started: bool = session.connection().execute(_START, {"trial": trial_id}).rowcount == 1
            if started:
                # Through Optuna's own table: version 4 keeps local time there, version 5 UTC.
                trial = TrialModel.find_or_raise_by_id(trial_id, session)
                trial.datetime_start = datetime.now()
        return started

    def record_heartbeat(self, trial_id: int) -> None:
        """Give a sign of life, and note for how many seconds this worker has been at the trial."""
        self._patience.insist(functools.partial(super().record_heartbeat, trial_id))
        now = time.monotonic()
        begun = self._begun.setdefault(trial_id, now)
        if now > begun:
            # Another worker may have ended the trial.
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                self.set_trial_user_attr(trial_id, "seconds", now - begun)

    @functools.cached_property
    def _begun(self) -> dict[int, float]:
        return {}

    #: The server's silences that the watch below has been begun anew after.
    _silences = 0

    @functools.cached_property
    def _watch(self) -> HeartbeatMonitor:
        return HeartbeatMonitor()

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Running trials whose heartbeat stands still; Optuna compares clocks, which jump."""
        beats = sqlalchemy.text(
            "SELECT trials.trial_id, trial_heartbeats.heartbeat FROM trials JOIN trial_heartbeats "
            "ON trials.trial_id = trial_heartbeats.trial_id "
            "WHERE trials.study_id = :study AND trials.state = 'RUNNING'"
        )

        def look() -> list[int]:
            with self.engine.connect() as connection:
                rows = connection.execute(beats, {"study": study_id}).all()
            if self._silences != self._patience.silences:
                # No worker could give a sign while the server was away: look anew.
                self._silences, self._watch = self._patience.silences, HeartbeatMonitor()
            signs = {trial: str(beat) for trial, beat in rows}
            return self._watch.silent(signs, float(self.grace_period or 2 * HEARTBEAT_INTERVAL))

        found: list[int] = self._patience.insist(look)
        return found

    def _was_told(self, trial_id: int, state: TrialState, values: Sequence[float] | None) -> bool:
        trial = self.get_trial(trial_id)
        told = None if trial.values is None else list(trial.values)
        return trial.state is state and told == (None if values is None else list(values))


def _patient(name: str) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(RDBStorage, name)

    @functools.wraps(original)
    def method(self: PatientStorage, *arguments: Any, **keywords: Any) -> Any:
        return self._patience.insist(lambda: original(self, *arguments, **keywords))

    return method


#: What Optuna's cache calls of a database besides the public methods.
_INNER = (
    "record_heartbeat",
    "_set_trial_param",
    "_get_best_trial_id",
    "_get_trials",
)
_PUBLIC = [name for name in vars(BaseStorage) if re.match(r"(create|delete|get|set)_", name)]
for _name in (*_PUBLIC, *_INNER):
    if _name in vars(RDBStorage) and _name not in vars(PatientStorage):
        setattr(PatientStorage, _name, _patient(_name))


class _Patience:
    """Repeats calls while the storage is away, for so long, and says so once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._silent_since: float | None = None
        self._given_up = False
        #: How often the storage went away.
        self.silences = 0

    def insist(self, call: Callable[[], Any]) -> Any:
        """The result of ``call``, which is repeated as long as the storage is away.

        Raises:
            StorageLost: it was away for too long.
        """
        pause = 0.5
        while True:
            try:
                result = call()
            except Exception as error:
                if not is_passing(error):
                    raise
                self._note_silence(error)
            else:
                self._note_answer()
                return result
            # A generator of its own: trainings draw from the global one.
            time.sleep(pause * random.SystemRandom().uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _note_silence(self, error: Exception) -> None:
        with self._lock:
            now = time.monotonic()
            if self._silent_since is None:
                self._silent_since = now
                self.silences += 1
                logging.getLogger(__name__).warning(
                    "the storage does not answer (%s); asking again for up to %.0f minutes",
                    _reason(error),
                    PATIENCE / 60,
                )
            silent = now - self._silent_since
            # What comes after (telling that the trial failed, say) must not wait as long again.
            self._given_up = self._given_up or silent > PATIENCE
            if self._given_up:
                raise StorageLost(
                    f"the storage {kind_of(self._url)}://... has not answered for "
                    f"{silent / 60:.0f} minutes: {_reason(error)}"
                ) from None

    def _note_answer(self) -> None:
        if self._silent_since is None:
            return
        with self._lock:
            if self._silent_since is not None:
                silent = time.monotonic() - self._silent_since
                logging.getLogger(__name__).warning("the storage answers after %.0f s", silent)
            self._silent_since, self._given_up = None, False


def is_passing(error: BaseException | None) -> bool:
    """Whether an error may pass: the server is away, or it asks to try again (a deadlock)."""
    while error is not None:
        if isinstance(error, sqlalchemy.exc.DBAPIError):
            if "sqlite3" in type(error.orig).__module__:
                return "locked" in str(error.orig)
            kinds = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError)
            return error.connection_invalidated or isinstance(error, kinds)
        error = error.__cause__ or error.__context__
    return False


# -- the journal file ----------------------------------------------------------------------------


# -- messages ------------------------------------------------------------------------------------


def _why_not_opened(url: str, password: str | None, error: Exception) -> str:
    """One sentence that does not show the password, and that may name the driver."""
    scheme = url.partition("://")[0]
    message = f"the storage {scheme}://... cannot be opened: "
    if isinstance(error, ImportError):
        return message + (
            "its driver is not installed; " + _DRIVERS.get(kind_of(url), "install it.")
        )
    reason = _reason(error).replace(url, f"{scheme}://...")
    if re.search(r"password|access denied", reason, re.IGNORECASE):
        reason += f"; the password is taken from the environment variable {PASSWORD_VARIABLE}"
    return message + (reason.replace(password, "***") if password else reason)


def _reason(error: BaseException) -> str:
    """The first words of the driver's own error."""
    while error.__cause__ is not None and not isinstance(error, sqlalchemy.exc.DBAPIError):
        error = error.__cause__
    cause = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(cause).__name__
