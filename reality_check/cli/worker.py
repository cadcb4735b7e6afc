"""``reality-check worker``: one more worker process for a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive

_DETAILS = """\
Starts one more worker for an experiment that `reality-check run` has started;
it ends when no work is left. Start one for each free GPU, on any machine that
can read the images and the output folder (with its copies of your loss files).
A worker uses the first GPU that is visible to it.

examples:
  reality-check worker runs/quickstart
  CUDA_VISIBLE_DEVICES=1 reality-check worker runs/quickstart

On SIGTERM, SIGUSR1 or SIGUSR2 it writes a checkpoint, releases its trial and
exits with status 75. docs/cluster.md has a job script for a cluster.
"""


def add_parser(commands: Commands) -> None:
    command = add_command(commands, "worker", run, "start one more worker for a run", _DETAILS)
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder of the run")
    command.add_argument(
        "--storage",
        metavar="URL",
        help="database URL that this machine uses (default: that of the run); the password may be "
        "in REALITY_CHECK_STORAGE_PASSWORD",
    )
    command.add_argument(
        "--folds-at-once",
        type=positive,
        default=1,
        metavar="N",
        help="number of folds of a trial to train in parallel, each in its own process "
        "(default: 1)",
    )
    command.add_argument(
        "--number",
        type=int,
        metavar="N",
        help="number of the worker, which `run --launcher command` gives to its jobs",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.launch.worker import join

    return join(options.dir, options.folds_at_once, options.storage, options.number)
