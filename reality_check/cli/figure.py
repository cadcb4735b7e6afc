"""``reality-check figure``: a figure of a paper."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.exit_status import DONE, FAILED, INTERRUPTED, STATUSES

_DETAILS = f"""\
Writes NAME.png (or .pdf), NAME.csv with the plotted numbers and NAME.txt with
what was run. `reality-check show figures` lists the names. Some figures are
computed from formulas. Others train small networks on MNIST or Omniglot in the
folder REALITY_CHECK_DATA, which takes minutes on one core; finished and
unfinished trainings are kept in DIR/runs, so the same command resumes where it
was stopped and trains nothing twice.

examples:
  reality-check figure warped_softmax_landscape
  reality-check figure heated_up_softmax_embeddings --out figures --format pdf
  reality-check figure heated_up_softmax_embeddings --quick

{STATUSES}
"""
#: Of pictures.
FORMATS = ("png", "pdf")


def add_parser(commands: Commands) -> None:
    title = "draw a figure of one of the papers"
    command = add_command(commands, "figure", run, title, _DETAILS)
    command.add_argument("name", metavar="FIGURE", help="one of `reality-check show figures`")
    command.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="output folder (default: figures)",
    )
    command.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        metavar="|".join(FORMATS),
        help=f"file format (default: {FORMATS[0]})",
    )
    budget = command.add_mutually_exclusive_group()
    budget.add_argument(
        "--quick",
        action="store_const",
        dest="budget",
        const="quick",
        default="default",
        help="a preview in seconds: tiny trainings on synthetic images, no data needed",
    )
    budget.add_argument(
        "--full",
        action="store_const",
        dest="budget",
        const="full",
        help="all images and the paper's number of epochs: takes hours without a GPU",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.papers.figures import Settings, find_figure, write_figure

    figure = find_figure(options.name)
    _check_folder(options.out)
    settings = Settings(options.budget, options.out, lambda line: print(line, flush=True))
    try:
        paths = write_figure(figure, settings, options.format)
    except (WorkFailed, OSError) as error:
        print(f"reality-check: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"\nStopped; nothing is lost. To continue: {options.again}", file=sys.stderr)
        return INTERRUPTED
    for path in paths:
        print(f"wrote {path}")
    return DONE


def _check_folder(folder: Path) -> None:
    """Raise UsageError if nothing could be written there, before anything is trained."""
    there = folder
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(
            f"--out {str(folder)!r} cannot be written: {str(there)!r} is no folder that takes "
            "files; name another one."
        )
