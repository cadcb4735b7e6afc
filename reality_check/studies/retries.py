"""Repeats calls of a storage whose server is being restarted or cannot be reached."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import sqlalchemy

from reality_check.studies.folder_server import NoServer
from reality_check.utils.errors import WorkFailed
from reality_check.utils.interrupt import uninterrupted

#: For how many seconds calls of an unavailable storage are repeated, and the longest pause.
RETRY_SECONDS, LONGEST_PAUSE = 1800.0, 15.0

P = ParamSpec("P")
T = TypeVar("T")


class StorageLost(WorkFailed):
    """The storage has not answered for :data:`RETRY_SECONDS`."""


class Retries:
    """Repeats calls for :data:`RETRY_SECONDS` while the storage is unavailable.

    Each outage is logged once.

    Args:
        kind: the kind of storage for messages, such as ``postgresql``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._given_up = False
        #: The number of outages so far.
        self.outages = 0

    @property
    def is_away(self) -> bool:
        """Whether the last call was not answered."""
        return self._away_since is not None

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of ``function``, which is repeated while the storage is unavailable.

        Raises:
            StorageLost: the storage has not answered for :data:`RETRY_SECONDS`.
        """
        pause = 0.5
        while True:
            try:
                # SQLAlchemy drops a connection that Ctrl-C interrupts, which then locks SQLite.
                with uninterrupted():
                    result = function(*args, **kwargs)
            except Exception as error:
                if not is_temporary(error):
                    raise
                self._begin_outage(error)
            else:
                self._end_outage()
                return result
            # Not the global generator, from which trainings draw.
            time.sleep(pause * random.SystemRandom().uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _begin_outage(self, error: Exception) -> None:
        """Record that a call failed; raise ``StorageLost`` if calls have failed for too long."""
        with self._lock:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self.outages += 1
                logging.getLogger(__name__).warning(
                    "the storage does not answer (%s); asking again for up to %.0f minutes",
                    reason(error),
                    RETRY_SECONDS / 60,
                )
            seconds = now - self._away_since
            # Later calls (such as recording that the trial failed) must not wait as long again.
            self._given_up = self._given_up or seconds > RETRY_SECONDS
            if self._given_up:
                raise StorageLost(
                    f"the storage {self._kind}://... has not answered for "
                    f"{seconds / 60:.0f} minutes: {reason(error)}"
                ) from None

    def _end_outage(self) -> None:
        """Record that a call was answered."""
        if self._away_since is None:
            return
        with self._lock:
            if self._away_since is not None:
                seconds = time.monotonic() - self._away_since
                logging.getLogger(__name__).warning("the storage answers after %.0f s", seconds)
            self._away_since, self._given_up = None, False


def is_temporary(error: BaseException | None) -> bool:
    """Whether a call may succeed later: the server is unavailable, or there was a deadlock."""
    if isinstance(error, NoServer):  # it may start later
        return True
    while error is not None:  # an error of Optuna may have one of SQLAlchemy as its cause
        if isinstance(error, sqlalchemy.exc.DBAPIError):
            if "sqlite3" in type(error.orig).__module__:
                return "locked" in str(error.orig)
            kinds = (sqlalchemy.exc.OperationalError, sqlalchemy.exc.InterfaceError)
            return error.connection_invalidated or isinstance(error, kinds)
        error = error.__cause__ or error.__context__
    return False


def reason(error: BaseException) -> str:
    """Return the beginning of the driver's error message, or of ``error``'s own."""
    while error.__cause__ is not None and not isinstance(error, sqlalchemy.exc.DBAPIError):
        error = error.__cause__
    cause = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(cause).__name__
