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
    command.add_argument(
        "--features",
        metavar="FILE",
        help="compare losses on the vectors in this file, e.g. from reality-check embed",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.cli.starter import write_starter

    path = at_home(options.file)
    print(*write_starter(path, options.features), sep="\n")
    print("Next: edit the loss and the YAML, or leave them as they are for now; then")
    if path.parent != Path():
        print(f"  cd {shlex.quote(str(path.parent))}")
    print(f"  reality-check check {path.name}")
    print(f"  reality-check run {path.name}")
    return DONE
