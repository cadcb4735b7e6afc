"""Small training modules that take steps on random images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod
from reality_check.training.module import TrainingModule

CLASSES, SIZE, BATCH = 5, 4, 10
MODEL = {"name": "tiny", "trunk": "conv4", "arguments": {"width": 4}, "pooling": "flatten"}
#: One that has no BatchNorm, but dropout.
DROPOUT = {**MODEL, "trunk": "identity", "arguments": {}, "embedder": {"dropout": 0.4}}


def training(optimizers: dict[str, dict[str, Any]] | None = None, **changes: Any) -> Training:
    """SGD with momentum; changes of one optimiser are by its part."""
    part = {"name": "SGD", "lr": 0.05, "arguments": {"momentum": 0.9}}
    parts = {name: {**part, **(optimizers or {}).get(name, {})} for name in
             ("trunk", "embedder", "loss")}  # fmt: skip
    values = {"batch_size": BATCH, "embedding_size": SIZE, "freeze_batchnorm": True}
    return Training.model_validate({**values, "optimizers": parts, **changes})


def settings(loss: str, **changes: Any) -> FilledMethod:
    values: dict[str, Any] = {
        "name": "m",
        "loss": loss,
        "arguments": {},
        "miner": None,
        "samples_per_class": 2,
        "learning_rates": {"trunk": 0.05, "embedder": 0.05, "loss": 0.05},
        "loss_weight_decay": 0.0,
        "normalize_embeddings": True,
    }
    return FilledMethod(**{**values, **changes})


def task_of(
    how: Training,
    method: FilledMethod | None = None,
    model: dict[str, Any] | None = None,
    fixed_epochs: tuple[int, int] | None = None,
) -> FoldTask:
    method = method or settings("NormalizedSoftmaxLoss")
    built = Model.model_validate(model or MODEL)
    return FoldTask(method, built, how, SIZE, 1, 2, fixed_epochs)


def module_of(
    how: Training, method: FilledMethod | None = None, model: dict[str, Any] | None = None
) -> TrainingModule:
    return TrainingModule(task_of(how, method, model), CLASSES, (16, 16, 1), torch.device("cpu"))


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """Some batches of shuffled classes."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(CLASSES).repeat_interleave(BATCH // CLASSES)
    return [
        (
            torch.randn(BATCH, 1, 16, 16, generator=generator),
            labels[torch.randperm(BATCH, generator=generator)],
        )
        for _ in range(count)
    ]


def train(made: TrainingModule, count: int) -> list[float]:
    """Take steps; return the losses."""
    losses = []
    torch.manual_seed(4)
    for number, (images, labels) in enumerate(batches(count)):
        made.train()
        made.set_iteration(number, 2)
        losses.append(float(made.step(images, labels)))
    return losses


def weights(made: TrainingModule) -> dict[str, Tensor]:
    """Copies of the weights of the network and the loss, by name."""
    both = {"network": made.network, "loss": made.loss}
    return {
        f"{part}.{name}": value.detach().clone()
        for part, module in both.items()
        for name, value in module.state_dict().items()
    }
