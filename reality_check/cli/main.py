# PYTHON_ARGCOMPLETE_OK
"""The command ``reality-check``: parses its arguments and calls one of the subcommands."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence

from reality_check._version import __version__
from reality_check.cli import (
    check,
    claim,
    compare,
    embed,
    export,
    init,
    registry,
    report,
    run,
    show,
    status,
    storage,
    track,
    verdicts,
    worker,
)
from reality_check.cli.parsing import Parser
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import FAILED, INTERRUPTED, USAGE
from reality_check.utils.printable import printable_output
from reality_check.utils.text import nearest

_DESCRIPTION = """\
Is this loss really better? Runs deep-metric-learning losses under one
protocol: class-disjoint cross-validation, hyper-parameter search with equal
budgets, reproductions with fresh seeds, and a report with intervals.

A first look: three losses on built-in images, in a few minutes:
  reality-check run quickstart --workers 2

Your own loss, in an empty folder:
  reality-check init                    writes a YAML and a loss file to edit
  reality-check check experiment.yaml   finds mistakes, estimates the cost
  reality-check run experiment.yaml     ends with a table and a report
  reality-check status experiment.yaml  shows progress, from another terminal
"""
#: Functions that add the commands, in the order of the help: those for newcomers come first.
_ADDERS = (
    init.add_parser,
    check.add_parser,
    run.add_parser,
    status.add_parser,
    report.add_parser,
    show.add_parser,
    registry.add_pack_parser,
    registry.add_merge_parser,
    registry.add_leaderboard_parser,
    export.add_parser,
    track.add_parser,
    worker.add_parser,
    storage.add_parser,
    embed.add_parser,
    verdicts.add_parser,
    claim.add_parser,
    compare.add_parser,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status (:mod:`reality_check.utils.exit_status`)."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(build_parser())
    printable_output()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(words)
    options.again = shlex.join(["reality-check", *words])  # how messages say to repeat the command
    try:
        return int(options.command(options))
    except UsageError as error:
        print(f"reality-check: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\nreality-check: stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; unlike in argparse alone, overrides may follow options."""
    options, unparsed = build_parser().parse_known_args(words)
    for text in unparsed:
        if text.startswith("-") or not hasattr(options, "overrides"):
            known = re.findall(r"--[a-z]+", options.parser.format_help())
            missing = f"option {text!r}" if text.startswith("-") else f"place for {text!r}"
            options.parser.error(f"there is no {missing}.{nearest(text, known)}")
        options.overrides.append(text)
    return options


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="reality-check",
        description=_DESCRIPTION,
        epilog="reality-check COMMAND --help explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"reality-check {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add_parser in _ADDERS:
        add_parser(commands)
    return parser
