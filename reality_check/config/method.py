"""What a method's YAML may say: its loss, what is searched, its miner and phases."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.config.types import Arguments, Name, PositiveInt, Tunable, check_learning_rate
from reality_check.config.values import Strict
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


class Start(Strict):
    """Where a search begins: with the winner of a simpler method's search of the same number.

    ``neutral`` gives the parameters that the simpler method does not have, by dotted name, the
    values that make this method the simpler one: ``{arguments.alpha: 1}``.
    """

    method: Name
    neutral: dict[str, str | bool | int | float | None] = Field(default_factory=dict)


class Method(Strict):
    """A loss with its fixed arguments, its search space and, if need be, a miner.

    ``samples_per_class: null`` draws images without regard to their classes. ``model`` changes keys
    of the experiment's model for this method alone: for experiments about heads and trunks (see
    :meth:`Model.changed`). ``starts_from`` puts the winner of another method's search in as the
    first trial of this one's. ``control_of`` names the method that this is a second copy of, with
    seeds of its own; the experiment's ``controls`` make such. ``training`` is a training of its
    own; in a YAML it names the keys of the protocol's that differ. Reports point both out.
    ``trials`` of each search is filled in where the protocol has ``trials_per_parameter``.
    """

    name: Name
    loss: str
    arguments: Arguments = Field(default_factory=dict)
    miner: Arguments | None = None
    samples_per_class: PositiveInt | None = 4
    learning_rates: LearningRates = Field(default_factory=LearningRates)
    loss_weight_decay: Annotated[float, Field(ge=0)] | None = None
    normalize_embeddings: bool = True
    phase2: SecondPhase | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    training: Training | None = None
    trials: PositiveInt | None = None
    starts_from: Start | None = None
    control_of: Name | None = None
    note: str = ""

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

    @field_validator("miner", mode="before")
    @classmethod
    def _miner(cls, value: Any) -> Any:
        value = {"class": value} if isinstance(value, str) else value
        if isinstance(value, dict) and "class" not in value:
            raise ValueError("a miner needs the key 'class', e.g. {class: MultiSimilarityMiner}")
        return value
