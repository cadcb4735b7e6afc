"""Disks that nobody waits for, in processes that are killed and never lose their power."""

from __future__ import annotations

import os
import sqlite3

from sqlalchemy import Engine
from sqlalchemy.event import listen


def do_not_wait_for_the_disk() -> None:
    """Who is killed loses nothing that it has written: that needs a power cut."""
    os.fsync = lambda file: None

    def connected(raw: object, record: object) -> None:
        if isinstance(raw, sqlite3.Connection):
            raw.execute("PRAGMA synchronous=OFF")

    listen(Engine, "connect", connected)
