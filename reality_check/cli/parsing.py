"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from reality_check.utils.config_files import config_files, paper_files
from reality_check.utils.exit_status import USAGE
from reality_check.utils.text import nearest

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class Parser(argparse.ArgumentParser):
    """A parser whose error messages are one line that says what to write instead."""

    def error(self, message: str) -> NoReturn:
        """Print an error of argparse on one line, and exit."""
        if match := re.search(r"(\S+): invalid choice: '([^']*)' \(choose from (.*)\)", message):
            option, word, choices = match[1], match[2], match[3].replace("'", "").split(", ")
            if option == "COMMAND":
                message = f"there is no command {word!r}; commands: {', '.join(choices)}."
                message += nearest(word, choices)
            else:
                message = f"argument {option}: must be {' or '.join(choices)}, got {word!r}"
        message = message.replace("the following arguments are required:", "missing:")
        if message == "missing: COMMAND":
            message += "; to start your own comparison: reality-check init"
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    title: str,
    details: str,
) -> Parser:
    """Add a command without arguments and return its parser.

    Args:
        commands: the object to which the command is added.
        name: the name of the command.
        run: carries out the command and returns the exit status.
        title: one line of help, without a full stop.
        details: the rest of the help, with examples.
    """
    command = commands.add_parser(
        name,
        help=title,
        description=f"{title[0].upper()}{title[1:]}.",
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(command=run, parser=command)
    return command


def add_experiment(command: Parser) -> None:
    """Add the arguments for an experiment and changes to it."""
    argument: Any = command.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="a YAML file, or a name from `reality-check show experiments`",
    )
    argument.completer = complete_experiment
    add_overrides(
        command,
        "overrides: any key of `reality-check show EXPERIMENT`, e.g. protocol=mlrc, "
        "protocol.search.trials=8, methods.contrastive.samples_per_class=2",
    )


def complete_experiment(prefix: str, **_: Any) -> list[str]:
    """Return what a shell offers for an experiment: names, and YAML files."""
    from argcomplete.completers import FilesCompleter

    return [*config_files("experiments"), *paper_files(), *FilesCompleter([".yaml"])(prefix)]


def add_overrides(command: Parser, text: str) -> None:
    """Add the argument for ``KEY=VALUE`` words."""
    command.add_argument("overrides", nargs="*", default=[], metavar="KEY=VALUE", help=text)


def seconds(text: str) -> int:
    """Parse a duration such as ``1h30m``, for argparse; return it in seconds."""
    if not re.fullmatch(r"(?=.*[1-9])([0-9]+[dhms])+", text):
        raise argparse.ArgumentTypeError(
            "must be a time above 0 in days, hours, minutes and seconds, such as 2d, 4h, 1h30m or "
            f"90s, got {text!r}"
        )
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall("([0-9]+)(.)", text))


def positive(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, got {text!r}")
    return value
