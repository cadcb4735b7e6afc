"""The storage of an experiment: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import contextlib
import functools
import random
import re
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy import URL, make_url

from reality_check.studies.folder_server import SERVER, find_server, how_to_start, serve_meanwhile
from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.retries import Retries, StorageLost, reason
from reality_check.utils.errors import UsageError
from reality_check.utils.passwords import PASSWORD_VARIABLE, password_for, without_password

#: Seconds between a worker's heartbeats, and seconds without one after which it counts as lost.
HEARTBEAT_INTERVAL, HEARTBEAT_GRACE = 60, 300
#: Seconds after which the server ends a transaction whose worker does not continue.
STANDSTILL = 60

#: Options of connections, which limit how long a driver waits for a server.
_CONNECT_OPTIONS: dict[str, dict[str, Any]] = {
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
#: The statements that set the limit ``STANDSTILL``.
_LIMIT_STATEMENTS = {
    "postgresql": "SET idle_in_transaction_session_timeout = '{}s'",
    "mysql": "SET SESSION idle_transaction_timeout = {}",
    "mariadb": "SET SESSION idle_transaction_timeout = {}",
}
_DRIVERS = {
    "postgresql": "pip install 'pml-extensions[postgres]' and write postgresql+psycopg://...",
    "mysql": "pip install 'pml-extensions[mysql]' and write mysql+pymysql://...",
    "mariadb": "pip install 'pml-extensions[mysql]' and write mysql+pymysql://...",
    SERVER: "pip install 'pml-extensions[postgres]'",
}


def kind_of(url: str | URL) -> str:
    """Return the scheme without the driver, such as ``sqlite`` or ``postgresql``."""
    scheme = url.drivername if isinstance(url, URL) else url.partition("://")[0]
    return scheme.partition("+")[0]


def storage_file(url: str | URL) -> Path | None:
    """Return the file of an SQLite URL, or ``None`` for a server.

    Raises:
        UsageError: the URL names no file, but for example a database in memory.
    """
    if kind_of(url) != "sqlite":
        return None
    parsed = make_url(url)
    if parsed.database in (None, "", ":memory:") or "uri" in parsed.query:
        raise UsageError(
            f"the storage {url} does not name a file by its path; a database in memory is that of "
            "one process, where no worker can reach it. Leave storage out for studies.db in the "
            "output folder, or write sqlite:////home/me/studies.db"
        )
    return Path(parsed.database)


def absolute_url(url: str) -> str:
    """Return the URL with the absolute path of its file, since workers may run in other folders."""
    file = storage_file(url)
    if file is None or file.is_absolute():
        return url
    absolute = make_url(url).set(database=str(file.absolute()))
    text = absolute.render_as_string()
    if make_url(text) != absolute:  # SQLAlchemy 2.0 has no text for a question mark in a path
        raise UsageError(f"no URL can hold the path {file.absolute()}; name another folder.")
    return text


def open_storage(url: str | URL, wait: bool = False) -> PatientStorage:
    """Open the storage of an experiment; databases get heartbeats.

    Args:
        url: the URL of a database, or that of an output folder's own server. The
            password is taken from the URL, or from the environment variable
            ``REALITY_CHECK_STORAGE_PASSWORD``.
        wait: whether to wait for a server that does not answer, as workers do.

    Raises:
        UsageError: the URL is not that of a storage, or the storage does not answer.
        StorageLost: the storage did not answer in the time that workers wait.
    """
    if isinstance(url, str) and "://" not in url:  # "server" has an output folder
        raise UsageError(
            "storage must be the URL of a database, such as postgresql+psycopg://user@host/name; "
            "leave it out for studies.db in the output folder."
        )
    # A URL object is that of studies.db in the output folder.
    bare, password = (url, None) if isinstance(url, URL) else password_for(url)
    try:
        if kind_of(bare) == "journal":
            raise UsageError(
                "storage is a journal:// URL, but journal files are no longer supported: start the "
                "experiment in a new --out, without storage (SQLite) or with a database server."
            )
        if kind_of(bare) == SERVER and not wait:
            serve_meanwhile(str(bare))
        connect = functools.partial(_open_with_retries, bare, password)
        return PatientStorage(connect, Retries(kind_of(bare)), wait)
    except (UsageError, StorageLost):
        raise
    except Exception as error:
        raise UsageError(_opening_error(bare, password, error)) from None


def holds_study(storage: BaseStorage, name: str) -> bool:
    """Whether the storage contains a study of that name."""
    try:
        storage.get_study_id_from_name(name)
    except KeyError:
        return False
    return True


def same_database(first: str | None, second: str | None) -> bool:
    """Whether two URLs may refer to one database, since only host, user or password differ.

    For example, a tunnel has a different host and port than the server behind it.
    """
    if first is None or second is None:
        return False
    if kind_of(first) == "sqlite":
        # Older output folders have paths relative to the folder in which the run began.
        return absolute_url(first) == absolute_url(second)
    databases = {  # the kind and name of each; with False, a # in a name begins no fragment
        (kind_of(url), urlsplit(without_password(url), "", False).path) for url in (first, second)
    }
    return len(databases) == 1


# -- databases -----------------------------------------------------------------------------------


def _open_with_retries(url: str | URL, password: str | None) -> RDBStorage:
    """Open a database; retry while another process creates its tables."""
    # A server of an output folder may have moved since the last time.
    url, password = find_server(str(url)) if kind_of(url) == SERVER else (make_url(url), password)
    for pause in (0.5, 1.0, 2.0, 4.0):
        try:
            return _open_database(url, password)
        except sqlalchemy.exc.DBAPIError as error:
            if not re.search(r"already exists|unique|duplicate", str(error.orig), re.IGNORECASE):
                raise
        time.sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
    return _open_database(url, password)


def _open_database(url: URL, password: str | None) -> RDBStorage:
    """Open a database with heartbeats, and with the options of its kind."""
    kind, file = kind_of(url), storage_file(url)
    # The password is not put in the URL, which Optuna and SQLAlchemy could show.
    connect = {
        **_CONNECT_OPTIONS.get(kind, {}),
        **({} if password is None else {"password": password}),
    }
    engine: dict[str, Any] = {"connect_args": connect}
    if kind != "sqlite":
        # A connection that a restart of the server has closed is replaced before it is used.
        engine["pool_pre_ping"] = True
        # The heartbeats' connection is closed after each use: servers allow about 100 in all.
        engine |= {"pool_size": 1, "max_overflow": 4}
    if kind in _LIMIT_STATEMENTS:
        engine["pool_events"] = [(functools.partial(_limit_standstill, kind), "connect")]
    if file is not None:
        # Optuna takes URLs as text, and SQLAlchemy 2.0 has none for a path with a question mark. So
        # the file is opened here, with the options of the URL, and Optuna gets only its name.
        connect |= url.get_dialect()().create_connect_args(url)[1]
        engine = {"creator": functools.partial(sqlite3.connect, file.absolute(), **connect)}
        url = URL.create("sqlite", database=file.name)
    database = RDBStorage(  # it formats the URL with str.format, hence the doubled braces
        url=url.render_as_string().replace("{", "{{").replace("}", "}}"),
        engine_kwargs=engine,
        heartbeat_interval=HEARTBEAT_INTERVAL,
        grace_period=HEARTBEAT_GRACE,
    )
    if kind in ("mysql", "mariadb"):
        _widen_texts(database.engine)
    return database


def _limit_standstill(kind: str, connection: Any, record: object) -> None:
    """Limit idle transactions, so that a worker that is paused with a lock cannot block others.

    SQLAlchemy calls this with every new connection.
    """
    # MySQL, unlike MariaDB, does not have this limit.
    with contextlib.suppress(Exception), contextlib.closing(connection.cursor()) as cursor:
        cursor.execute(_LIMIT_STATEMENTS[kind].format(STANDSTILL))
    connection.commit()


def _widen_texts(engine: sqlalchemy.Engine) -> None:
    """Widen MySQL's TEXT columns of 64 kB, since the curves of a long training are longer."""
    narrow = sqlalchemy.text(
        "SELECT table_name, column_name FROM information_schema.columns WHERE "
        "table_schema = DATABASE() AND column_name = 'value_json' AND data_type = 'text'"
    )
    with engine.begin() as connection:
        for table, column in connection.execute(narrow).all():
            change = f"ALTER TABLE {table} MODIFY {column} MEDIUMTEXT"
            connection.execute(sqlalchemy.text(change))


# -- messages ------------------------------------------------------------------------------------


def _opening_error(url: str | URL, password: str | None, error: Exception) -> str:
    """Return the message why a storage cannot be opened, without its password."""
    kind = kind_of(url)
    message = f"the storage {kind}://... cannot be opened: "
    if isinstance(error, ImportError):
        return message + ("its driver is not installed; " + _DRIVERS.get(kind, "install it."))
    explanation = reason(error)
    if kind == SERVER:
        explanation += f"; {how_to_start(str(url))}"
    elif re.search(r"password|access denied", explanation, re.IGNORECASE):
        explanation += f"; the password is taken from the environment variable {PASSWORD_VARIABLE}"
    return message + (explanation.replace(password, "***") if password else explanation)
