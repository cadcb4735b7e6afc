"""``reality-check status``: the progress of an experiment."""

from __future__ import annotations

import argparse
import time

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.exit_status import DONE, FAILED

_DETAILS = """\
Shows for each method how many trials, reproductions and final trainings are
done and the best validation score so far; for each worker its current work,
machine and log; failures and lost workers; the hours of GPUs and CPU processes
used; and the estimated time left. Works at any time, on any machine that can
read the folder and the storage.

examples:
  reality-check status runs/quickstart
  reality-check status runs/quickstart --watch
  reality-check status runs/quickstart --json
"""
#: Seconds between two polls of `--watch`.
_WATCH_SECONDS = 5.0


def add_parser(commands: Commands) -> None:
    command = add_command(commands, "status", run, "show the progress of an experiment", _DETAILS)
    command.add_argument(
        "dir",
        metavar="DIR",
        help="output folder, e.g. runs/quickstart, or the YAML or name of an experiment run here",
    )
    command.add_argument(
        "--json", action="store_true", help="print one line of JSON (keys: docs/status.md)"
    )
    command.add_argument(
        "--watch", action="store_true", help="refresh until all is done or nothing is running"
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.cli.status_view import print_status
    from reality_check.studies.progress import find_folder
    from reality_check.studies.recorded_experiment import read_experiment
    from reality_check.studies.suite_folder import member_folders

    # Of a suite, one for each data set
    members = [*map(read_experiment, member_folders(find_folder(options.dir)))]
    states = [print_status(recorded, options.json) for recorded in members]
    while options.watch and "running" in states:
        time.sleep(_WATCH_SECONDS)
        states = [
            print_status(recorded, options.json, again=number == 0)
            for number, recorded in enumerate(members)
        ]
    return FAILED if options.watch and "failed" in states else DONE
