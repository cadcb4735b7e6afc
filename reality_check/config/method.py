"""The keys of a method's YAML: its loss, what is searched, its miner and phases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.model import Model
from reality_check.config.training import Training, check_kind, check_steps
from reality_check.config.types import (
    Arguments,
    DataPath,
    Fixed,
    Name,
    PositiveInt,
    Searchable,
    Tunable,
    check_choices,
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
    """Learning rates of parameters, by the name of the loss's method that returns them:
    {hypergraph_parameters: 6.0e-4}."""

    _check = field_validator("trunk", "embedder", "loss")(check_learning_rate)

    @field_validator("loss_parts")
    @classmethod
    def _check_loss_parts(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, rate in value.items():
            if rate is None:
                raise ValueError(f"{name} needs a learning rate, or is to be left out")
            check_learning_rate(rate)
        return value


class SecondPhase(Strict):
    """What changes when validation has reached its first plateau."""

    arguments: Arguments = Field(default_factory=dict)
    """New values of arguments of the loss."""
    factors: Arguments = Field(default_factory=dict)
    """Factors by which arguments of the loss change from the first phase."""
    lr_factor: Tunable = 0.1
    """Factor by which the learning rates of trunk and embedder change."""
    loss_lr_factor: Tunable = None
    """Factor by which the loss's learning rate changes; null: lr_factor."""

    _check_factors = field_validator("lr_factor", "loss_lr_factor")(check_learning_rate)

    @model_validator(mode="after")
    def _check(self) -> Self:
        both = sorted(set(self.arguments) & set(self.factors))
        if both:
            raise ValueError(f"{both[0]!r} is given both as an argument and as a factor")
        if self.lr_factor is None:
            raise ValueError("lr_factor must be a number or a range")
        return self


#: Keys that only some kinds of schedules have, and these kinds.
_KINDS_OF_KEYS = {
    "at": ("step",),
    "every": ("step",),
    "epochs": ("linear", "cosine"),
    "factor": ("step", "linear", "cosine"),
}


class ValueSchedule(Strict):
    """How a value of the loss changes during training, as a multiple of its initial value.

    ``every``, ``epochs`` and ``factor`` may be searched.
    """

    kind: Literal["constant", "step", "linear", "cosine"]
    """constant, step, linear or cosine."""
    at: list[PositiveInt] = Field(default_factory=list)
    """For steps: the epochs after which the value changes."""
    every: Tunable = None
    """For steps: the number of epochs between changes."""
    epochs: Tunable = None
    """For linear and cosine: for how many epochs the value changes; null: max_epochs."""
    factor: Tunable = None
    """The factor of a step, or the final factor of a line or cosine that starts at 1."""
    per: Literal["epoch", "iteration"] = "epoch"
    """Whether it changes each epoch or each iteration."""

    @field_validator("every", "epochs")
    @classmethod
    def _check_epochs(cls, value: Any) -> Any:
        is_integer = not isinstance(value, Range) or value.integer
        wrong = [end for end in ends_of(value) if end < 1 or end % 1]
        if wrong or not is_integer:
            raise ValueError(
                "write a whole number of epochs, at least 1 (and int: true in a range), got "
                f"{f'{wrong[0]:g}' if wrong else 'a range of fractions'}"
            )
        return value

    @field_validator("factor")
    @classmethod
    def _check_factor(cls, value: Any) -> Any:
        if any(end <= 0 for end in ends_of(value)):
            raise ValueError(f"factor must be above 0, got {min(ends_of(value)):g}")
        return value

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        check_kind(self, _KINDS_OF_KEYS)
        if self.kind != "constant" and self.factor is None:
            raise ValueError(f"a schedule of the kind {self.kind} needs factor, such as 0.25")
        check_steps(self)
        return self

    @property
    def length(self) -> float:
        """The latest epoch at which the last value (for ``every``, the second one) is reached."""
        return max([*self.at, *ends_of(self.every), *ends_of(self.epochs)], default=0)

    def last_change(self, limit: int) -> int:
        """Return the last epoch, up to a limit, at which a value without searched keys changes."""
        if self.at or self.epochs or self.kind == "constant":
            return int(self.length)
        # Such a value changes until the end: after every so many epochs, or after each.
        every = int(self.length) or 1
        return (limit - 1) // every * every


def open_values(
    schedules: Mapping[str, ValueSchedule], training: Training, two_phases: bool
) -> list[str]:
    """Return the names of the values that change until an end of training that is not known."""
    if training.patience is None and training.selects_among(two_phases) == training.max_epochs:
        return []  # the end is max_epochs
    return [
        name
        for name, schedule in schedules.items()
        if schedule.kind != "constant" and not schedule.at and schedule.epochs is None
    ]


def last_change(
    schedules: Mapping[str, ValueSchedule], training: Training, two_phases: bool
) -> int:
    """Return the number of epochs after which no value of a loss changes; 0 if it is unknown.

    Only weights that were trained for longer are valid weights of the method.
    """
    if open_values(schedules, training, two_phases):
        return 0
    limit = training.selects_among(two_phases)
    return max((schedule.last_change(limit) for schedule in schedules.values()), default=0)


class BeforeTraining(Strict):
    """What is fitted to the training images before the first step.

    The batch statistics are fitted first.
    """

    batch_statistics: bool = False
    """Whether to update the statistics of BatchNorms, and nothing else, in one pass."""
    proxies: Literal["random", "class_means"] = "random"
    """Initial proxies of the loss: random, or class_means of the embeddings, scaled to unit
    length."""


class Start(Strict):
    """The first trial of each search: the winner of the same search of a simpler method."""

    method: Name
    """Name of the simpler method."""
    neutral: Fixed = Field(default_factory=dict)
    """Values, by dotted name, with which this method equals the simpler one: {arguments.alpha:
    1}."""


class WarmStart(Strict):
    """Parameters of the first trial of each search; a YAML may name an output folder instead."""

    values: Fixed = Field(min_length=1)
    """Parameters of the first trial of each search, by dotted name."""
    folder: str | None = None
    """The output folder that the values were read from: those of the best trial."""


class Control(Strict):
    """A method to run a second time under another name, with other seeds."""

    of: Name
    """Name of the method."""
    draws: Literal["own", "shared"] = "own"
    """Whether the copy draws trials of its own, or the same random ones as all methods."""


class Packed(Strict):
    """The pack that a method's results come from, in a YAML ``{from: PACK}``."""

    file: DataPath
    """Path of the pack."""
    checksum: str
    """Checksum of the content of the pack."""
    experiment: Name
    """The experiment that it was packed from."""


class Method(Strict):
    """A loss with its fixed arguments, its search space and, optionally, a miner."""

    name: Name
    """Name of the method, of its folder and in the report."""
    loss: str
    """A name (reality-check show losses) or an import path such as my_losses.MyLoss."""
    arguments: Arguments = Field(default_factory=dict)
    """Arguments of the loss's constructor. A plain value is fixed; {low: 0, high: 1} is searched,
    also with log: true or int: true; {choices: [a, b]} too."""
    miner: Arguments | None = None
    """A name (reality-check show miners), or {class: NAME, argument: value}."""
    samples_per_class: Searchable[PositiveInt | None] = 4
    """Images of each class in a batch; null: batches are drawn without regard to classes. Choices
    are searched."""
    learning_rates: LearningRates = Field(default_factory=LearningRates)
    """Learning rates that differ from the protocol's."""
    loss_weight_decay: NonNegativeFloat | None = None
    """Weight decay of the loss's own parameters; null is the protocol's."""
    normalize_embeddings: bool = True
    """Whether embeddings are scaled to unit length for evaluation."""
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
    """Number of trials of each of its searches; written by trials_per_parameter."""
    starts_from: Start | None = None
    """The method whose winners are the first trials of this one's searches."""
    warm_start: WarmStart | None = None
    """Values of each search's first trial, or an output folder whose best trial of this method has
    them."""
    control_of: Name | None = None
    """The method that this is a second copy of, with its own seeds; written by `controls`."""
    control_draws: Literal["own", "shared"] = "own"
    """Whether a control draws the same random trials as the methods; written by `controls`."""
    packed: Packed | None = None
    """The pack that its results come from, so that nothing is trained; written for {from: PACK}."""
    note: str = ""
    """Text shown in the report."""

    @field_validator("samples_per_class")
    @classmethod
    def _check_samples_per_class(cls, value: Any) -> Any:
        return check_choices(value, 1)

    @model_validator(mode="after")
    def _check_changes(self) -> Self:
        """Check that no value both follows a schedule and is changed by the second phase."""
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
    def _interpret_model(cls, value: Any) -> Any:
        """Interpret words that YAML 1.1 reads as something else, as :class:`Model` does."""
        key, value = "remove_last_bn_relu", Model.as_meant(value)  # type: ignore[operator]
        if isinstance(value, dict) and key in value:
            value[key] = Model._boolean_as_text(value[key])  # YAML 1.1 reads no as false
        return value

    @field_validator("model")
    @classmethod
    def _check_model_keys(cls, value: dict[str, Any]) -> dict[str, Any]:
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
    def _expand_starts_from(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value

    @field_validator("warm_start", mode="before")
    @classmethod
    def _read_warm_start(cls, value: Any, info: ValidationInfo) -> Any:
        """Read the parameters of the method's best trial if an output folder is given."""
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
    def _expand_miner(cls, value: Any) -> Any:
        value = {"class": value} if isinstance(value, str) else value
        if isinstance(value, dict) and "class" not in value:
            raise ValueError("a miner needs the key 'class', e.g. {class: MultiSimilarityMiner}")
        return value
