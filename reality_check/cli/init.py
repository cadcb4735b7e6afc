"""``reality-check init``: files to start from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.errors import at_home
from reality_check.utils.exit_status import DONE

_DETAILS = """\
Writes FILE, an experiment with every usual key explained, and next to it
my_losses.py, a loss to change into your own, and reality-check.schema.json,
from which editors complete and check FILE. An existing FILE is never
overwritten, and an existing my_losses.py is kept.

examples:
  reality-check init
  reality-check init arcface_or_mine.yaml
  reality-check init --features birds_features
  reality-check init --suite cub200,cars196

Then: reality-check check FILE, and reality-check run FILE.
"""


def add_parser(commands: Commands) -> None:
    title = "write a commented YAML and a loss file to start from"
    command = add_command(commands, "init", run, title, _DETAILS)
    command.add_argument(
        "file",
        nargs="?",
        default="experiment.yaml",
        metavar="FILE",
        help="the YAML to write, in this or another folder (default: experiment.yaml)",
    )
    subject = command.add_mutually_exclusive_group()
    subject.add_argument(
        "--suite",
        metavar="NAME,NAME,...",
        type=names,
        default=[],
        help="compare losses on several data sets, for one verdict over all",
    )
    subject.add_argument(
        "--features",
        metavar="FILE",
        help="compare losses on the vectors in this file, e.g. from reality-check embed",
    )


def names(text: str) -> list[str]:
    """Parse the names of two data sets or more, for argparse, whose message has this name."""
    found = [name.strip() for name in text.split(",")]
    if len(found) < 2 or not all(found):
        raise ValueError
    return found


def run(options: argparse.Namespace) -> int:
    from reality_check.cli.starter import write_starter

    path = at_home(options.file)
    print(*write_starter(path, options.features, options.suite), sep="\n")
    print("Next: edit the loss and the YAML, or leave them as they are for now; then")
    if path.parent != Path():
        print(f"  cd {shlex.quote(str(path.parent))}")
    print(f"  reality-check check {path.name}")
    print(f"  reality-check run {path.name}")
    return DONE
