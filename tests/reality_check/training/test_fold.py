"""The fingerprint of a task: by it a checkpoint is told from that of another task."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import Field

from reality_check.config import Model, Training
from reality_check.config.training import Optimizer, Optimizers, Schedule
from reality_check.config.values import Strict
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod, FilledSecondPhase

RATES = {"trunk": 1e-4, "embedder": 1e-3, "loss": 0.0}
SETTINGS: dict[str, Any] = {
    "name": "mine",
    "loss": "my_losses.MyLoss",
    "arguments": {"margin": 0.1, "distance": {"class": "LpDistance", "p": 2}},
    "miner": None,
    "samples_per_class": 4,
    "learning_rates": RATES,
    "loss_weight_decay": 0.0,
    "normalize_embeddings": True,
    "second_phase": FilledSecondPhase({}, {"scale": 0.5}, 0.1, 0.1),
    "params": {"arguments.margin": 0.1},
}
TRAINING: dict[str, Any] = {
    "optimizers": {part: {"lr": 0.1} for part in ("trunk", "embedder", "loss")},
    "max_epochs": 40,
}


def task(**changes: Any) -> FoldTask:
    values: dict[str, Any] = {
        "settings": FilledMethod(**SETTINGS),
        "model": Model(name="conv4", arguments={"width": 4}),
        "training": Training.model_validate(TRAINING),
        "embedding_size": 8,
        "network_seed": 1,
        "loss_seed": 2,
    }
    return FoldTask(**{**values, **changes})


def changed(part: str, **changes: Any) -> FoldTask:
    """The task with other values in its settings, model or training."""
    whole = task()
    old = getattr(whole, part)
    if part == "settings":
        return dataclasses.replace(whole, settings=dataclasses.replace(old, **changes))
    return dataclasses.replace(whole, **{part: old.model_copy(update=changes)})


class Block(Strict):
    """A block of options that today's trainings do not have."""

    start: int = 3
    ends: list[int] = Field(default_factory=list)


class MoreModel(Model):
    """A model with one option more."""

    frozen_blocks: int = 0


class MoreOptimizer(Optimizer):
    """One option more, deep inside."""

    foreach: bool | None = None


class MoreOptimizers(Optimizers):
    """The optimisers with it."""

    trunk: MoreOptimizer


class MoreTraining(Training):
    """A training with more options."""

    optimizers: MoreOptimizers
    block: Block = Field(default_factory=Block)


@dataclass(frozen=True)
class MoreSettings(FilledMethod):
    """Settings with more options."""

    queue: int = 0
    views: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": MoreModel(name="conv4", arguments={"width": 4})},
        {"training": MoreTraining.model_validate(TRAINING)},
        {"training": MoreTraining.model_validate({**TRAINING, "block": {"start": 3}})},
        {"settings": MoreSettings(**SETTINGS)},
        {"fixed_epochs": None, "selects_on": "validation"},
        {"settings": FilledMethod(**{**SETTINGS, "learning_rates": dict([*RATES.items()][::-1])})},
    ],
    ids=["model", "deep inside", "written out", "settings", "of the task", "order"],
)
def test_names_of_classes_and_options_with_their_defaults_change_nothing(
    changes: dict[str, Any],
) -> None:
    assert task(**changes).fingerprint() == task().fingerprint()


DIFFERENT = {
    "as it is": task(),
    "embedding_size": task(embedding_size=9),
    "network_seed": task(network_seed=3),
    "loss_seed": task(loss_seed=3),
    "fixed_epochs": task(fixed_epochs=(3, 1)),
    "their order": task(fixed_epochs=(1, 3)),
    "keep_model": task(keep_model=False),
    "selects_on": task(selects_on="test"),
    "trunk": changed("model", trunk="resnet50"),
    "an argument": changed("model", arguments={"width": 8}),
    "no argument": changed("model", arguments={}),
    "an option": task(training=MoreTraining.model_validate({**TRAINING, "block": {"ends": [1]}})),
    "batch_size": changed("training", batch_size=16),
    "schedule": changed("training", schedule=Schedule(kind="cosine")),
    "a step": changed("training", schedule=Schedule(kind="step", at=[3])),
    "patience": changed("training", patience=None),
    "tf32": changed("training", tf32=True),
    "loss": changed("settings", loss="my_losses.Other"),
    "arguments": changed("settings", arguments={"margin": 0.2}),
    "miner": changed("settings", miner={"class": "MultiSimilarityMiner"}),
    "samples_per_class": changed("settings", samples_per_class=None),
    "a rate": changed("settings", learning_rates={**RATES, "loss": 1e-9}),
    "normalize_embeddings": changed("settings", normalize_embeddings=False),
    "no second phase": changed("settings", second_phase=None),
    "second phase": changed(
        "settings", second_phase=FilledSecondPhase({}, {"scale": 0.5}, 0.1, 0.2)
    ),
}


def test_every_changed_value_is_another_task() -> None:
    prints = {name: one.fingerprint() for name, one in DIFFERENT.items()}
    assert len(set(prints.values())) == len(prints), prints


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    """Where this changes, open checkpoints are not continued."""
    assert task().fingerprint() == (
        "dc5cd70f30827e4aebc4fc66263eecb52e2cd4bbbc8fd436049ae09a03a0a963"
    )
