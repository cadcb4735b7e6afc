"""The exceptions that users see as a sentence instead of a stack trace."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class UsageError(Exception):
    """Something the user gave cannot be used.

    The message is one clear sentence: what was given, what is allowed, what to write instead.
    The command line prints it without a stack trace and exits with status 2.
    """


class WorkFailed(Exception):
    """A unit of work raised an exception: the whole run stops, with the reason."""


def one_line(value: Any, most: int = 300) -> str:
    """The text of an exception, or of a value, on one line of limited length."""
    text = " ".join((str(value) if isinstance(value, BaseException) else repr(value)).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


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


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the valid name closest to ``name``, else ``""``."""
    matches = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f" Did you mean {matches[0]!r}?" if matches else ""
