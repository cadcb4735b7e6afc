"""The exceptions that users see as a sentence instead of a stack trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Returned = TypeVar("Returned")


class UsageError(Exception):
    """Something the user gave cannot be used.

    The message is one clear sentence: what was given, what is allowed, what to write instead.
    The command line prints it without a stack trace and exits with status 2.
    """


class WorkFailed(Exception):
    """A unit of work raised an exception: the whole run stops, with the reason."""


def every(
    calls: Iterable[Callable[[], Returned]], kind: type[Exception] = UsageError
) -> list[Returned]:
    """Make all calls, whatever those before them found, so that all mistakes are told at once.

    Returns:
        What they return.

    Raises:
        kind: some of them did; a line for each mistake.
    """
    returned, mistakes = [], []
    for call in calls:
        try:
            returned.append(call())
        except kind as error:
            mistakes.append(str(error))
    if mistakes:
        raise kind("\n".join(dict.fromkeys(mistakes)))
    return returned


def at_home(path: str | Path) -> Path:
    """The path with ``~`` or ``~user`` at its beginning replaced by that home folder.

    Raises:
        UsageError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{str(path)!r} begins with the home folder of a user that this machine does not have; "
            "write ~/ for your own, ./~ for a file whose name begins so, or the whole path."
        ) from None
