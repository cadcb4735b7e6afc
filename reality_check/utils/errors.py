"""The exceptions that users see as a sentence instead of a stack trace."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from reality_check.utils.text import one_line

Returned = TypeVar("Returned")

#: Top-level packages whose lines do not show users what to fix in their own code.
_LIBRARIES = {
    "reality_check",
    "pml_extensions",
    "pytorch_metric_learning",
    "torch",
    "numpy",
    "optuna",
    *sys.stdlib_module_names,
}


class UsageError(Exception):
    """Something the user gave cannot be used.

    The message is one clear sentence: what was given, what is allowed, what to write instead.
    The command line prints it without a stack trace and exits with status 2.
    """


class WorkFailed(Exception):
    """A trial or a final training raised an exception: the whole run stops, with the reason."""


@contextlib.contextmanager
def users_code(subject: str) -> Iterator[None]:
    """Turn any exception that user code raises, SystemExit included, into a UsageError.

    Args:
        subject: the beginning of the message, such as ``method 'mine': MyLoss failed``.

    Raises:
        UsageError: the code raised an exception. A UsageError or KeyboardInterrupt is passed on.
    """
    try:
        yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{subject}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return an exception's message on one line, with file and line of the user's code."""
    text = one_line(error)
    if isinstance(error, SystemExit):
        text = f"the program is ended by sys.exit({error.code!r})"
    else:
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    lines = [
        (package, frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if (package := str(frame.f_globals.get("__name__")).partition(".")[0]) not in _LIBRARIES
    ]
    if not lines:
        return text
    # Show the last line in the package that was called, not in the libraries that it calls.
    _, file, number = [line for line in lines if line[0] == lines[0][0]][-1]
    return f"{text} ({file.removeprefix(os.path.join(os.getcwd(), ''))}:{number})"


def every(
    calls: Iterable[Callable[[], Returned]], kind: type[Exception] = UsageError
) -> list[Returned]:
    """Make all calls and report the mistakes of all of them at once.

    Returns:
        Their return values, in order.

    Raises:
        kind: at least one call raised it; the message has a line for each mistake.
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


def labelled(label: str, call: Callable[[], Returned]) -> Returned:
    """Make a call; the message of its mistake begins with a label."""
    try:
        return call()
    except UsageError as error:
        raise UsageError(
            "\n".join(f"{label}: {line}" for line in str(error).splitlines())
        ) from error


def at_home(path: str | Path) -> Path:
    """Return the path with a leading ``~`` or ``~user`` replaced by that home folder.

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
