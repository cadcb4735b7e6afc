"""Calls that fail for a while, as those of a database server that is restarted."""

from __future__ import annotations

import sqlalchemy


class Flaky:
    """Fails so often before it works."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "done"


def gone() -> Exception:
    return sqlalchemy.exc.OperationalError("SELECT", {}, Exception("server closed"), False)
