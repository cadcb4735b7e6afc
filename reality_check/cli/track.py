"""``reality-check track``: finished trials to TensorBoard, MLflow, Weights & Biases, ..."""

from __future__ import annotations

import argparse

from reality_check.cli.parsing import Commands, add_command
from reality_check.report.text import counted
from reality_check.utils.exit_status import DONE, FAILED

_DETAILS = """\
Sends all trials, reproductions and final runs of an output folder that a
tracker has not been sent before: curves, hyper-parameters, test scores. Nothing
is trained. `reality-check run --track NAME` does the same as they finish.

  database     records.db in the folder: one SQLite file, record-keeper's tables
  mlflow       to MLFLOW_TRACKING_URI
  tensorboard  tensorboard/ in the folder: a run for each training
  wandb        to WANDB_PROJECT; WANDB_MODE=offline keeps the runs in the folder

examples:
  reality-check track runs/quickstart tensorboard
  MLFLOW_TRACKING_URI=http://host:5000 reality-check track runs/quickstart mlflow

exit status: 0 all is sent, 1 something could not be sent, 2 there is no such
folder or tracker
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    title = "send finished trials to TensorBoard, MLflow or Weights & Biases"
    command = add_command(commands, "track", run, title, _DETAILS)
    command.add_argument("dir", metavar="DIR", help="output folder, e.g. runs/quickstart")
    command.add_argument("trackers", metavar="NAME", nargs="+", help="of a tracker, as below")


def run(options: argparse.Namespace) -> int:
    """Send what is missing; return the exit status."""
    from reality_check.api import track

    tracking = track(options.dir, options.trackers)
    for name, count in tracking.sent.items():
        print(f"{name}: {counted(count, 'trial')} sent")
    return FAILED if tracking.problems else DONE
