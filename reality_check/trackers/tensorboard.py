"""TensorBoard: a run for each training, with its curve, hyper-parameters and results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from reality_check.trackers.tracked_trial import Row, TrackedTrial
from reality_check.utils.own_names import own_path


class TensorBoardTracker:
    """Writes ``tensorboard/`` into the output folder; ``tensorboard --logdir`` shows it.

    A run has a name like ``contrastive/trial 03/fold 1``. Test metrics belong to the whole trial,
    so they are repeated in the run of each fold.
    """

    def __init__(self, experiment: str, out_dir: Path) -> None:
        self._folder = own_path(out_dir, "tensorboard")

    def log(self, trial: TrackedTrial) -> None:
        """Write the runs of a trial."""
        kind, _, number = trial.name.rpartition(" ")
        folder = self._folder / trial.method / f"{kind} {int(number):02d}"
        shutil.rmtree(folder, ignore_errors=True)
        if not trial.curves:  # a baseline
            self._write(folder, trial, ())
        for fold, curve in enumerate(trial.curves, 1):
            self._write(folder / f"fold {fold}", trial, curve)

    def close(self) -> None:
        """Do nothing, since all trials have been written."""

    @staticmethod
    def _write(folder: Path, trial: TrackedTrial, curve: tuple[Row, ...]) -> None:
        """Write a run: the curve by epoch, the results, and the hyper-parameters."""
        with SummaryWriter(str(folder)) as writer:
            for row in curve:
                for name, value in row.items():
                    tag = "training/loss" if name == "loss" else f"validation/{name}"
                    if name != "epoch":
                        writer.add_scalar(tag, value, int(row["epoch"]))
            values = {f"result/{name}": value for name, value in trial.values.items()}
            for name, value in values.items():
                writer.add_scalar(name, value, 0)
            params: dict[str, Any] = {"method": trial.method, "stage": trial.stage}
            for name, param in trial.params.items():
                params[name] = param if isinstance(param, bool | int | float | str) else str(param)
            # Skip the first summary, which would declare this run's parameters for all runs.
            for summary in hparams(params, values)[1:]:
                writer.file_writer.add_summary(summary)
