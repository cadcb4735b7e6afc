"""What a method's YAML may say: its loss, what is searched, its miner and phases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.model import Model
from reality_check.config.training import Training, check_kind, check_steps
from reality_check.config.types import (
    Arguments,
    Name,
    PositiveInt,
    Tunable,
    check_learning_rate,
)
from reality_check.config.values import Choices, Range, Strict, is_number
from reality_check.utils.text import nearest


class LearningRates(Strict):
    """A method's own learning rates; ``null`` means the protocol's.

    ``loss_parts`` gives parameters of the loss a rate apart, by the method of the loss that returns
    them: ``{hypergraph_parameters: 6.0e-4}``.
    """

    trunk: Tunable = None
    embedder: Tunable = None
    loss: Tunable = None
    loss_parts: dict[str, Tunable] = Field(default_factory=dict)

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
    """What changes when validation has reached its first plateau.

    ``arguments`` replaces values of the loss, ``factors`` multiplies its first-phase values;
    ``lr_factor`` multiplies the learning rates of trunk and embedder, ``loss_lr_factor`` that of
    the loss (default: the same).
    """

    arguments: Arguments = Field(default_factory=dict)
    factors: Arguments = Field(default_factory=dict)
    lr_factor: Tunable = 0.1
    loss_lr_factor: Tunable = None

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

    ``step`` multiplies by ``factor`` after each of the epochs ``at``, or after each ``every``
    epochs. ``linear`` and ``cosine`` lead from 1 to ``factor`` within ``epochs`` (null:
    ``max_epochs``), and it stays there. ``per`` says whether it changes each epoch or each
    iteration. ``every``, ``epochs`` and ``factor`` may be searched.
    """

    kind: Literal["constant", "step", "linear", "cosine"]
    at: list[PositiveInt] = Field(default_factory=list)
    every: Tunable = None
    epochs: Tunable = None
    factor: Tunable = None
    per: Literal["epoch", "iteration"] = "epoch"

    @field_validator("every", "epochs")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        whole = not isinstance(value, Range) or value.integer
        wrong = [end for end in _ends(value) if end < 1 or end % 1]
        if wrong or not whole:
            raise ValueError(
                "write a whole number of epochs, at least 1 (and int: true in a range), got "
                f"{f'{wrong[0]:g}' if wrong else 'a range of fractions'}"
            )
        return value

    @field_validator("factor")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        if any(end <= 0 for end in _ends(value)):
            raise ValueError(f"factor must be above 0, got {min(_ends(value)):g}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_kind(self, _OF_KINDS)
        if self.kind != "constant" and self.factor is None:
            raise ValueError(f"a schedule of the kind {self.kind} needs factor, such as 0.25")
        check_steps(self)
        return self


def _ends(value: Any) -> list[Any]:
    """The numbers that a value can be, or the smallest and largest of them."""
    if isinstance(value, Choices):
        return [entry for entry in value.choices if entry is not None]
    if isinstance(value, Range):
        return [value.low, value.high]
    return [value] if is_number(value) else []


class BeforeTraining(Strict):
    """What is fitted to the training images before the first step.

    ``batch_statistics`` takes one pass over them in training mode that learns nothing, so that
    BatchNorms begin with statistics of theirs; then ``proxies: class_means`` starts each proxy of
    the loss at the mean embedding of its class, at unit length.
    """

    batch_statistics: bool = False
    proxies: Literal["random", "class_means"] = "random"


class Start(Strict):
    """Where a search begins: with the winner of a simpler method's search of the same number.

    ``neutral`` gives the parameters that the simpler method does not have, by dotted name, the
    values that make this method the simpler one: ``{arguments.alpha: 1}``.
    """

    method: Name
    neutral: dict[str, str | bool | int | float | None] = Field(default_factory=dict)


class WarmStart(Strict):
    """What the first trial of each search uses: in place of it a YAML may name an output folder.

    ``values`` are by dotted name; ``folder`` says whose best trial they are.
    """

    values: dict[str, str | bool | int | float | None] = Field(min_length=1)
    folder: str | None = None


class Method(Strict):
    """A loss with its fixed arguments, its search space and, if need be, a miner.

    ``samples_per_class: null`` draws images without regard to their classes. ``model`` changes keys
    of the experiment's model for this method alone: for experiments about heads and trunks (see
    :meth:`Model.changed`). ``starts_from`` puts the winner of another method's search in as the
    first trial of this one's, and ``warm_start`` the values of the best trial in another output
    folder, where the method has the same name. ``control_of`` names the method that this is a
    second copy of, with seeds of its own; the experiment's ``controls`` make such. ``training`` is
    a training of its own; in a YAML it names the keys of the protocol's that differ. Reports point
    all of these out.
    ``schedules`` changes values of the loss by name, bit by bit: ``{alpha: {kind: step, every: 10,
    factor: 0.7}}``. ``trials`` of each search is filled in where the protocol has
    ``trials_per_parameter``.
    """

    name: Name
    loss: str
    arguments: Arguments = Field(default_factory=dict)
    miner: Arguments | None = None
    samples_per_class: PositiveInt | None = 4
    learning_rates: LearningRates = Field(default_factory=LearningRates)
    loss_weight_decay: Annotated[float, Field(ge=0)] | None = None
    normalize_embeddings: bool = True
    before_training: BeforeTraining = Field(default_factory=BeforeTraining)
    schedules: dict[str, ValueSchedule] = Field(default_factory=dict)
    phase2: SecondPhase | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    training: Training | None = None
    trials: PositiveInt | None = None
    starts_from: Start | None = None
    warm_start: WarmStart | None = None
    control_of: Name | None = None
    note: str = ""

    @model_validator(mode="after")
    def _one_change(self) -> Self:
        """A value cannot follow a schedule and be set by the second phase."""
        second = self.phase2
        changed = {**second.arguments, **second.factors} if second else {}
        both = sorted(set(self.schedules) & set(changed))
        if both:
            raise ValueError(
                f"{both[0]!r} has a schedule and is changed by phase2; leave one of the two out"
            )
        return self

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
        best = {one["name"]: one.get("best_trial") for one in methods}
        if best.get(info.data.get("name")) is None:
            found = ", ".join(name for name, trial in best.items() if trial) or "none"
            raise ValueError(
                f"{value} has no best trial of a method of this name; it has some of: {found}"
            )
        return {"folder": value, "values": best[info.data["name"]]["params"]}

    @field_validator("miner", mode="before")
    @classmethod
    def _miner(cls, value: Any) -> Any:
        value = {"class": value} if isinstance(value, str) else value
        if isinstance(value, dict) and "class" not in value:
            raise ValueError("a miner needs the key 'class', e.g. {class: MultiSimilarityMiner}")
        return value
