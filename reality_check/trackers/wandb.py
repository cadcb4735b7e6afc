"""Weights & Biases: a run for each trial, in groups by method."""

from __future__ import annotations

import os
from pathlib import Path

import wandb

from reality_check.trackers.tracked_trial import TrackedTrial


class WandbTracker:
    """Sends trials.

    ``WANDB_PROJECT``, ``WANDB_ENTITY``, ``WANDB_MODE`` and ``WANDB_DIR`` configure it. Without a
    network, ``WANDB_MODE=offline`` keeps the runs in ``wandb/`` of the output folder, and
    ``wandb sync`` sends them later.
    """

    def __init__(self, experiment: str, out_dir: Path) -> None:
        self._project = os.environ.get("WANDB_PROJECT", experiment)
        self._folder = os.environ.get("WANDB_DIR", str(out_dir))

    def log(self, trial: TrackedTrial) -> None:
        """Create a run and end it. An earlier run of the same trial remains, with the same name."""
        run = wandb.init(
            project=self._project,
            name=f"{trial.method}, {trial.name}",
            group=trial.method,
            job_type=trial.stage,
            config={"method": trial.method, **trial.params},
            tags=["diverged"] if trial.diverged else [],
            dir=self._folder,
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        metrics_by_epoch: dict[int, dict[str, float]] = {}
        for fold, curve in enumerate(trial.curves, 1):
            for row in curve:
                metrics = {f"fold {fold}/{name}": row[name] for name in row if name != "epoch"}
                metrics_by_epoch.setdefault(int(row["epoch"]), {}).update(metrics)
        for epoch in sorted(metrics_by_epoch):
            run.log({"epoch": epoch, **metrics_by_epoch[epoch]}, step=epoch)
        run.summary.update({**trial.values, "seconds": trial.seconds})
        run.finish(exit_code=1 if trial.diverged else 0)

    def close(self) -> None:
        """Do nothing, since all trials have been sent."""
