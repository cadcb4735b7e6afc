"""``reality-check worker``: one more process for a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive

_DETAILS = """\
One more process that takes trainings from an experiment that `reality-check
run` has started, and ends when none is left. Start as many as there are free
GPUs, on any machine that sees the output folder, which has copies of your own
loss files, and the images. A worker takes the GPU that it sees first.

examples:
  reality-check worker runs/quickstart
  CUDA_VISIBLE_DEVICES=1 reality-check worker runs/quickstart

SIGTERM or SIGUSR2 ask it to stop: it writes a checkpoint, gives its training
back and ends with exit status 75. A job script of a cluster: docs/cluster.md.
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    command = add_command(commands, "worker", run, "join the work on an output folder", _DETAILS)
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder of a started run")
    command.add_argument(
        "--storage",
        metavar="URL",
        help="how this machine reaches the database, if not by the URL that the run was started "
        "with; its password may stand in REALITY_CHECK_STORAGE_PASSWORD",
    )
    command.add_argument(
        "--folds-at-once",
        type=positive,
        default=1,
        metavar="N",
        help="folds of a trial that it trains at a time, each a process (default: 1)",
    )


def run(options: argparse.Namespace) -> int:
    """Take trainings until none is left; return the exit status."""
    from reality_check.launch.worker import join

    return join(options.dir, options.folds_at_once, options.storage)
