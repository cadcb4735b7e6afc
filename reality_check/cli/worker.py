"""``reality-check worker``: one more process for a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive

_DETAILS = """\
Starts one more worker for an experiment that `reality-check run` has begun; it
ends when no work is left. Start as many as there are free GPUs, on any machine
that sees the images and the output folder, which has copies of your loss files.
A worker uses the first GPU that it sees.

examples:
  reality-check worker runs/quickstart
  CUDA_VISIBLE_DEVICES=1 reality-check worker runs/quickstart

On SIGTERM or SIGUSR2 it writes a checkpoint, gives its trial back and ends with
exit status 75. A job script for a cluster: docs/cluster.md.
"""


def add_parser(commands: Commands) -> None:
    command = add_command(commands, "worker", run, "start one more worker for a run", _DETAILS)
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder of a started run")
    command.add_argument(
        "--storage",
        metavar="URL",
        help="URL of the database as this machine reaches it (default: that of the run); the "
        "password may be in REALITY_CHECK_STORAGE_PASSWORD",
    )
    command.add_argument(
        "--folds-at-once",
        type=positive,
        default=1,
        metavar="N",
        help="folds of a trial to train in parallel, each in its own process (default: 1)",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.launch.worker import join

    return join(options.dir, options.folds_at_once, options.storage)
