"""The keys of an experiment's block ``command:``, for any scheduler that has commands."""

from __future__ import annotations

import re
import string

from pydantic import ValidationInfo, field_validator

from reality_check.config.values import Strict
from reality_check.utils.text import nearest

_SUBMIT = ("command", "log", "name", "worker", "folder")
_JOB = ("job", "folder")


class Command(Strict):
    """Shell commands that submit, ask for and end one job, which is one worker.

    It may change between two runs. Names in braces are filled in, quoted for a shell; braces of the
    shell's own are written twice.
    """

    submit: str
    """Submits a job and prints its number. {command} is the worker's command, {log} a file for the
    job's own output, {worker} the worker's number, {folder} the output folder, {name} a name."""
    number: str = r"(\S+)\s*\Z"
    """Regular expression whose group is the number in what submit prints; by default the last
    word."""
    state: str
    """Asks for the state of the job {job}."""
    waiting: str | None = None
    """Regular expression, found in what state prints as long as the job waits."""
    gone: str | None = None
    """Regular expression, found in what state prints once the job has ended. By default a job for
    which state fails has ended; with a pattern, such a failure means that nobody answers."""
    end: str
    """Ends the job {job}."""

    @field_validator("submit", "state", "end")
    @classmethod
    def _check_template(cls, value: str, info: ValidationInfo) -> str:
        known = _SUBMIT if info.field_name == "submit" else _JOB
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(value) if name is not None]
        except ValueError as error:
            raise ValueError(f"{error} in {value!r}; write {{{{ for a brace itself") from None
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise ValueError(
                f"there is no {{{unknown}}}, but {', '.join(f'{{{name}}}' for name in known)}; "
                f"write {{{{ for a brace itself.{nearest(unknown, known)}"
            )
        if known is _JOB and "job" not in names:
            raise ValueError(f"{value!r} does not say which job: it needs {{job}}")
        if known is _SUBMIT and not {"command", "worker"} & {*names}:
            raise ValueError(
                f"{value!r} starts no worker: it needs {{command}}, or {{worker}} for a command of "
                "its own, reality-check worker DIR --number N"
            )
        return value

    @field_validator("number", "waiting", "gone")
    @classmethod
    def _check_pattern(cls, value: str | None, info: ValidationInfo) -> str | None:
        try:
            groups = re.compile(value or "").groups
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from None
        if info.field_name == "number" and groups != 1:
            raise ValueError(
                f"{value!r} needs one group in parentheses, the job's number, and has {groups}"
            )
        return value
