"""What a method's YAML may say: its loss, what is searched, its miner and phases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.model import Model
from reality_check.config.training import Training, check_kind, check_steps
from reality_check.config.types import (
    Arguments,
    DataPath,
    Fixed,
    Name,
    PositiveInt,
    Tunable,
    check_learning_rate,
)
from reality_check.config.values import Range, Strict, ends_of
from reality_check.utils.text import nearest


class LearningRates(Strict):
    """A method's own learning rates; ``null`` means the protocol's."""

    trunk: Tunable = None
    """Learning rate of the trunk; null is the protocol's, 0 freezes it."""
    embedder: Tunable = None
    """Learning rate of the head and the embedder."""
    loss: Tunable = None
    """Learning rate of the loss's own parameters."""
    loss_parts: dict[str, Tunable] = Field(default_factory=dict)
    """Rates of parameters that a method of the loss returns, by that method's name:
    {hypergraph_parameters: 6.0e-4}."""

    _check = field_validator("trunk", "embedder", "loss")(check_learning_rate)

    @field_validator("loss_parts")
    @classmethod
    def _rates(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, rate in value.items():
            if rate is None:
                raise ValueError(f"{name} needs a learning rate, or is to be left out")
            check_learning_rate(rate)
        return value


class SecondPhase(Strict):
    """What changes when validation has reached its first plateau."""

    arguments: Arguments = Field(default_factory=dict)
    """Values of the loss that are replaced."""
    factors: Arguments = Field(default_factory=dict)
    """What multiplies the first phase's values of the loss."""
    lr_factor: Tunable = 0.1
    """What multiplies the learning rates of trunk and embedder."""
    loss_lr_factor: Tunable = None
    """What multiplies the loss's learning rate; null: lr_factor."""

    _check_factors = field_validator("lr_factor", "loss_lr_factor")(check_learning_rate)

    @model_validator(mode="after")
    def _check(self) -> Self:
        both = sorted(set(self.arguments) & set(self.factors))
        if both:
            raise ValueError(f"{both[0]!r} is given both as an argument and as a factor")
        if self.lr_factor is None:
            raise ValueError("lr_factor must be a number or a range")
        return self


#: Keys of a value's schedule that belong to some kinds of it only.
_OF_KINDS = {
    "at": ("step",),
    "every": ("step",),
    "epochs": ("linear", "cosine"),
    "factor": ("step", "linear", "cosine"),
}


class ValueSchedule(Strict):
    """How a value of the loss changes during a training, by a factor of what it begins with.

    ``every``, ``epochs`` and ``factor`` may be searched.
    """

    kind: Literal["constant", "step", "linear", "cosine"]
    """constant, step, linear or cosine."""
    at: list[PositiveInt] = Field(default_factory=list)
    """For steps: after which epochs."""
    every: Tunable = None
    """For steps: after every such number of epochs."""
    epochs: Tunable = None
    """For linear and cosine: how long it changes; null: max_epochs."""
    factor: Tunable = None
    """The factor of a step, or the final factor of a line or cosine that starts at 1."""
    per: Literal["epoch", "iteration"] = "epoch"
    """Whether it changes each epoch or each iteration."""

    @field_validator("every", "epochs")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        whole = not isinstance(value, Range) or value.integer
        wrong = [end for end in ends_of(value) if end < 1 or end % 1]
        if wrong or not whole:
            raise ValueError(
                "write a whole number of epochs, at least 1 (and int: true in a range), got "
                f"{f'{wrong[0]:g}' if wrong else 'a range of fractions'}"
            )
        return value

    @field_validator("factor")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        if any(end <= 0 for end in ends_of(value)):
            raise ValueError(f"factor must be above 0, got {min(ends_of(value)):g}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_kind(self, _OF_KINDS)
        if self.kind != "constant" and self.factor is None:
            raise ValueError(f"a schedule of the kind {self.kind} needs factor, such as 0.25")
        check_steps(self)
        return self

    @property
    def length(self) -> float:
        """The latest epoch at which it reaches its last value; for ``every``, its second value."""
        return max([*self.at, *ends_of(self.every), *ends_of(self.epochs)], default=0)

    def last_change(self, limit: int) -> int:
        """Return the last epoch, up to a limit, at which the value changes; none is searched."""
        if self.at or self.epochs or self.kind == "constant":
            return int(self.length)
        every = int(self.length) or 1
        return (limit - 1) // every * every


def open_values(
    schedules: Mapping[str, ValueSchedule], training: Training, two_phases: bool
) -> list[str]:
    """Return the names of values that change until the end of a training."""
    if training.patience is None and training.selects_among(two_phases) == training.max_epochs:
        return []
    return [
        name
        for name, schedule in schedules.items()
        if schedule.kind != "constant" and not schedule.at and schedule.epochs is None
    ]


def last_change(
    schedules: Mapping[str, ValueSchedule], training: Training, two_phases: bool
) -> int:
    """Epochs after which the values of a loss stay as they are; 0 where that is open.

    Only weights that were trained for longer are those of the method.
    """
    if open_values(schedules, training, two_phases):
        return 0
    limit = training.selects_among(two_phases)
    return max((schedule.last_change(limit) for schedule in schedules.values()), default=0)


class BeforeTraining(Strict):
    """What is fitted to the training images before the first step.

    The statistics come first.
    """

    batch_statistics: bool = False
    """One pass that learns nothing but the statistics of BatchNorms."""
    proxies: Literal["random", "class_means"] = "random"
    """Start of the loss's proxies: random, or class_means of the embeddings, at unit length."""


class Start(Strict):
    """Where a search begins: with the winner of a simpler method's search of the same number."""

    method: Name
    """Name of the simpler method."""
    neutral: Fixed = Field(default_factory=dict)
    """By dotted name, values that make this method the simpler one: {arguments.alpha: 1}."""


class WarmStart(Strict):
    """Parameters of the first trial of each search; a YAML may name an output folder instead."""

    values: Fixed = Field(min_length=1)
    """Parameters of the first trial of each search, by dotted name."""
    folder: str | None = None
    """The output folder whose best trial has these values."""


class Packed(Strict):
    """The pack that a method's results come from, in a YAML ``{from: PACK}``."""

    file: DataPath
    """Path of the pack."""
    checksum: str
    """Checksum of the content of the pack."""
    experiment: Name
    """The experiment that it was packed from."""


class Method(Strict):
    """A loss with its fixed arguments, its search space and, if need be, a miner."""

    name: Name
    """Name of the method, of its folder and in the report."""
    loss: str
    """A name (reality-check show losses) or an import path such as my_losses.MyLoss."""
    arguments: Arguments = Field(default_factory=dict)
    """Arguments of the loss's constructor. A plain value is fixed; {low: 0, high: 1} is searched,
    also with log: true or int: true; {choices: [a, b]} too."""
    miner: Arguments | None = None
    """A name (reality-check show miners), or {class: NAME, argument: value}."""
    samples_per_class: PositiveInt | None = 4
    """Images of each class in a batch; null: without regard to classes."""
    learning_rates: LearningRates = Field(default_factory=LearningRates)
    """Learning rates that differ from the protocol's."""
    loss_weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay of the loss's own parameters; null is the protocol's."""
    normalize_embeddings: bool = True
    """Whether embeddings have length 1 when they are measured."""
    before_training: BeforeTraining = Field(default_factory=BeforeTraining)
    """What is fitted to the training images before the first step."""
    schedules: dict[str, ValueSchedule] = Field(default_factory=dict)
    """Values of the loss that change gradually, by name: {alpha: {kind: step, every: 10, factor:
    0.7}}."""
    phase2: SecondPhase | None = None
    """What changes when validation has reached its first plateau."""
    model: Arguments = Field(default_factory=dict)
    """Keys of the experiment's model that differ for this method alone."""
    training: Training | None = None
    """Keys of the protocol's training that differ for this method alone."""
    trials: PositiveInt | None = None
    """Trials of each of its searches; written by trials_per_parameter."""
    starts_from: Start | None = None
    """The method whose winners are the first trials of this one's searches."""
    warm_start: WarmStart | None = None
    """Values of each search's first trial, or the folder where this method's best has them."""
    control_of: Name | None = None
    """The method that this is a second copy of, with its own seeds; written by `controls`."""
    packed: Packed | None = None
    """The pack that its results come from, so that nothing is trained; written for {from: PACK}."""
    note: str = ""
    """Shown in the report."""

    @model_validator(mode="after")
    def _no_double_change(self) -> Self:
        """A value cannot follow a schedule and be set by the second phase."""
        second = self.phase2
        changed = {**second.arguments, **second.factors} if second else {}
        both = sorted(set(self.schedules) & set(changed))
        if both:
            raise ValueError(
                f"{both[0]!r} has a schedule and is changed by phase2; leave one of the two out"
            )
        return self

    @field_validator("model", mode="before")
    @classmethod
    def _as_in_a_model(cls, value: Any) -> Any:
        key, value = "remove_last_bn_relu", Model.as_meant(value)  # type: ignore[operator]
        if isinstance(value, dict) and key in value:
            value[key] = Model._yes_or_no(value[key])  # what YAML 1.1 made of no
        return value

    @field_validator("model")
    @classmethod
    def _keys_of_a_model(cls, value: dict[str, Any]) -> dict[str, Any]:
        allowed = [name for name in Model.model_fields if name != "name"]
        unknown = next((key for key in value if key not in allowed), None)
        if unknown is not None:
            raise ValueError(
                f"unknown key {unknown!r}.{nearest(unknown, allowed)} Valid keys here: "
                f"{', '.join(allowed)}"
            )
        return value

    @field_validator("starts_from", mode="before")
    @classmethod
    def _start(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value

    @field_validator("warm_start", mode="before")
    @classmethod
    def _best_of_folder(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, str):
            return value
        file = Path(value, "summary.json")
        try:
            methods = json.loads(file.read_text())["methods"]
        except (OSError, ValueError, KeyError, TypeError):
            raise ValueError(
                f"there is no {file}; name the output folder of a finished run (reality-check "
                "report DIR writes that file)"
            ) from None
        best = {method["name"]: method.get("best_trial") for method in methods}
        if best.get(info.data.get("name")) is None:
            names = ", ".join(name for name, trial in best.items() if trial) or "none"
            raise ValueError(
                f"{value} has no best trial of a method of this name; it has some of: {names}"
            )
        return {"folder": value, "values": best[info.data["name"]]["params"]}

    @field_validator("miner", mode="before")
    @classmethod
    def _miner(cls, value: Any) -> Any:
        value = {"class": value} if isinstance(value, str) else value
        if isinstance(value, dict) and "class" not in value:
            raise ValueError("a miner needs the key 'class', e.g. {class: MultiSimilarityMiner}")
        return value
