"""``reality-check track``: finished trials to TensorBoard, MLflow, Weights & Biases, ..."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.report.wording import counted
from reality_check.utils.exit_status import DONE, FAILED

_DETAILS = """\
Sends those trials, reproductions and final trainings of an output folder that a
tracker does not have yet: curves, hyper-parameters, test scores. Nothing is
trained. `reality-check run --track NAME` sends them as they finish.

  mlflow       to MLFLOW_TRACKING_URI
  tensorboard  tensorboard/ in the folder: a run for each training
  wandb        to WANDB_PROJECT; WANDB_MODE=offline keeps the runs in the folder

examples:
  reality-check track runs/quickstart tensorboard
  MLFLOW_TRACKING_URI=http://host:5000 reality-check track runs/quickstart mlflow

exit status: 0 everything was sent, 1 something could not be sent, 2 no such
folder or tracker
"""


def add_parser(commands: Commands) -> None:
    title = "send finished trials to TensorBoard, MLflow or Weights & Biases"
    command = add_command(commands, "track", run, title, _DETAILS)
    command.add_argument("dir", metavar="DIR", help="output folder, e.g. runs/quickstart")
    command.add_argument("trackers", metavar="NAME", nargs="+", help="one of the trackers below")


def run(options: argparse.Namespace) -> int:
    from reality_check.api import track
    from reality_check.studies.suite_folder import member_folders

    failed = False
    for folder in member_folders(Path(options.dir)):
        tracking = track(folder, options.trackers)
        for name, count in tracking.sent.items():
            print(f"{name}: {counted(count, 'trial')} sent")
        failed |= bool(tracking.problems)
    return FAILED if failed else DONE
