"""Trains a few steps in every process of torchrun; the main one writes what came out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from reality_check.config import Model, Training
from reality_check.data import make_glyphs
from reality_check.launch.worker import join_process_group, leave_process_group
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledSecondPhase
from reality_check.training.strategy import Strategy
from reality_check.training.trainer import Trainer
from support.training_modules import settings

LOSSES: dict[str, dict[str, Any]] = {
    "proxies": {"loss": "NormalizedSoftmaxLoss"},
    "two phases": {
        "loss": "NormalizedSoftmaxLoss",
        "second_phase": FilledSecondPhase({"temperature": 0.1}, {}, 0.5, 0.5),
    },
    "miner": {"loss": "TripletMarginLoss", "miner": {"class": "BatchEasyHardMiner"}},
}
#: The same by each process in parts of 3: by gradient accumulation, and by GradCache.
PARTS = ("proxies", "miner")


def main() -> None:
    """Train with each loss."""
    strategy = join_process_group() or Strategy()
    data = make_glyphs(12, 6, 16, 0)
    train, validation = data.subset(range(8)), data.subset(range(8, 12))
    part = {"name": "SGD", "lr": 0.0, "arguments": {"momentum": 0.9}}
    training = Training.model_validate(
        {
            "batch_size": 8,
            "iterations_per_epoch": 3,
            "max_epochs": 3,
            "evaluate_every": 1,
            "freeze_batchnorm": True,
            "optimizers": {"trunk": part, "embedder": part, "loss": part},
            "augmentation": {"rotation": 20, "horizontal_flip": 0.5},
        }
    )
    model = Model(name="tiny", trunk="conv4", arguments={"width": 8}, pooling="flatten")
    folder = Path(sys.argv[1])
    for name, changes in (*LOSSES.items(), *((f"{key}, parts", LOSSES[key]) for key in PARTS)):
        size = 3 if "parts" in name else None
        how = training.model_copy(update={"sub_batch_size": size})
        task = FoldTask(settings(**changes), model, how, 8, network_seed=1, loss_seed=2)
        place = folder / name
        run = Trainer(
            task,
            train,
            validation,
            place,
            torch.device("cpu"),
            strategy=strategy,
            checkpoint_seconds=0,
        )
        run.run()
        if strategy.is_main:
            state = {**run.network.state_dict(), **run.loss.state_dict()}
            losses = [row["loss"] for row in run.progress.history if row["loss"] is not None]
            torch.save({"state": state, "losses": losses}, folder / f"{name}.pt")
    leave_process_group()


if __name__ == "__main__":
    main()
