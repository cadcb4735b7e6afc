"""Storages that take less time: in processes that never lose their power, or open hundreds."""

from __future__ import annotations

import os
import sqlite3

from optuna.storages._rdb.storage import _VersionManager
from sqlalchemy import Engine
from sqlalchemy.event import listen


def do_not_wait_for_the_disk() -> None:
    """Who is killed loses nothing that it has written: that needs a power cut."""
    os.fsync = lambda file: None

    def connected(raw: object, record: object) -> None:
        if isinstance(raw, sqlite3.Connection):
            raw.execute("PRAGMA synchronous=OFF")

    listen(Engine, "connect", connected)


def read_migrations_once() -> None:
    """Optuna loads its migrations at each opening of a storage, which is most of what it takes."""
    manager = object.__new__(_VersionManager)
    manager.url = "sqlite://"  # they are the same for each
    migrations = manager._create_alembic_script()
    _VersionManager._create_alembic_script = lambda self: migrations  # type: ignore[method-assign]
