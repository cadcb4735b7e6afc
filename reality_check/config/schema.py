"""The typed form of an experiment: what the YAML may say, with types, ranges and defaults.

Unknown keys are errors. All durations are in epochs as the protocol counts them
(:attr:`Training.iterations_per_epoch` iterations), all learning rates are per optimiser step.
"""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.claims import Category, Claim
from reality_check.config.datasets import Dataset
from reality_check.config.metrics import METRICS, Stage, check_name
from reality_check.config.model import Model
from reality_check.config.published import PublishedResults
from reality_check.config.slurm import Slurm
from reality_check.config.training import Training
from reality_check.config.types import (
    RESULT_NEUTRAL,
    TABLE_NEUTRAL,
    Arguments,
    MayDiffer,
    Name,
    PositiveInt,
    Tunable,
    check_learning_rate,
)
from reality_check.config.values import Strict, find_searched, parse_value
from reality_check.utils.passwords import without_password
from reality_check.utils.text import nearest


class Split(Strict):
    """Which classes train, validate and test (protocol section 1).

    ``test_classes`` is ``half`` (the second half of the sorted classes, the protocol's rule) or
    ``official`` (those that the data set's own split tests on). The rule ``halves`` trains on the
    first half of the others and validates on the second, as the only fold.
    """

    test_classes: Literal["half", "official"] = "half"
    rule: Literal["mlrc", "kfold", "halves"] = "mlrc"
    folds: Annotated[int, Field(ge=1, le=20, validate_default=True)] = 4

    @field_validator("folds")
    @classmethod
    def _one_fold(cls, value: int, info: ValidationInfo) -> int:
        rule = info.data.get("rule")
        if rule is not None and (value == 1) != (rule == "halves"):
            raise ValueError(
                f"rule={rule} with folds={value}: the rule halves has 1 fold, the others have at "
                "least 2"
            )
        return value


class Search(Strict):
    """The hyper-parameter search of every method: the same budget for all."""

    trials: PositiveInt = 50
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    startup_trials: Annotated[int, Field(ge=1)] = 10


class Complete(Strict):
    """The category trained on all trainval classes."""

    round_epochs_up_to: PositiveInt = 5


class Published(Strict):
    """What the published protocol used beyond our options; only compared, in the report.

    ``model`` is one of ``configs/models/``, ``images`` how the data set decodes its files.
    ``methods`` lists folders of ``configs/methods/`` whose methods replace those of the same name,
    the first folder first: search ranges that were published for one data set.
    """

    model: str | None = None
    dataset: list[str] | None = None
    images: dict[str, Any] = Field(default_factory=dict)
    methods: list[str] = Field(default_factory=list)


class Protocol(Strict):
    """The rules that all methods of an experiment share.

    ``selects_on`` says by which data the epoch of the scored weights is chosen. ``validation``: by
    the validation classes of the folds, in the search and the reproductions. ``last``: by none, the
    training ends at ``max_epochs``. ``test``: by the test classes, as many papers did, so that the
    results are no estimate of anything; every report of it says so. With the last two one network
    is trained on all trainval classes (``categories: [complete]``) and nothing is searched.

    ``final_metrics`` are measured on the test classes beside the protocol's three metrics; nothing
    is selected by them (names: :mod:`reality_check.config.metrics`). ``gallery`` is a number of
    test images whose nearest neighbours the report shows for each method.
    """

    name: Annotated[Name, TABLE_NEUTRAL]
    reference: Name
    note: Annotated[str, TABLE_NEUTRAL] = ""
    split: Split = Field(default_factory=Split)
    selects_on: Literal["validation", "last", "test"] = "validation"
    training: Training
    search: Search = Field(default_factory=Search)
    reproductions: PositiveInt = 10
    categories: list[Category] = Field(default=["aggregate", "ensemble"], min_length=1)
    complete: Complete = Field(default_factory=Complete)
    final_metrics: Annotated[list[str], TABLE_NEUTRAL] = Field(default_factory=list)
    gallery: Annotated[int, Field(ge=0, le=50), TABLE_NEUTRAL] = 0
    published: Published = Field(default_factory=Published)

    @field_validator("categories")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("each category may be listed once")
        return value

    @field_validator("final_metrics")
    @classmethod
    def _known_metrics(cls, value: list[str]) -> list[str]:
        for name in value:
            check_name(name)
        twice = sorted({name for name in value if value.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]!r} is listed twice; list each metric once")
        return value

    @model_validator(mode="after")
    def _only_complete(self) -> Self:
        if self.selects_on != "validation" and self.categories != ["complete"]:
            raise ValueError(
                f"selects_on: {self.selects_on} has no validation classes, so there are no folds "
                f"to score; write categories: [complete], not {list(self.categories)}"
            )
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that every method goes through, in their order.

        Reproductions are trained where a category of theirs is wanted; else the number of epochs
        of the final stage comes from the search.
        """
        wanted = {
            Stage.SEARCH: self.selects_on == "validation",
            Stage.REPRODUCTIONS: self.categories != ["complete"],
            Stage.FINAL: "complete" in self.categories,
        }
        return tuple(stage for stage, is_wanted in wanted.items() if is_wanted)


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


class Method(Strict):
    """A loss with its fixed arguments, its search space and, if need be, a miner.

    ``samples_per_class: null`` draws images without regard to their classes. ``model`` changes keys
    of the experiment's model for this method alone: for experiments about heads and trunks (see
    :meth:`Model.changed`). ``training`` is a training of its own; in a YAML it names the keys of
    the protocol's that differ. Reports point both out.
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

    @field_validator("miner", mode="before")
    @classmethod
    def _miner(cls, value: Any) -> Any:
        value = {"class": value} if isinstance(value, str) else value
        if isinstance(value, dict) and "class" not in value:
            raise ValueError("a miner needs the key 'class', e.g. {class: MultiSimilarityMiner}")
        return value


#: Folders of the output folder that are not those of a method.
RESERVED_NAMES = {"logs", "figures"}


class Experiment(Strict):
    """One YAML: a data set, a model, a protocol, and the methods to compare."""

    name: Annotated[Name, TABLE_NEUTRAL]
    dataset: Dataset
    model: Model
    protocol: Protocol
    methods: Annotated[list[Method], TABLE_NEUTRAL] = Field(min_length=1)
    claims: list[Claim] = Field(default_factory=list)
    published_results: Annotated[PublishedResults | None, RESULT_NEUTRAL] = None
    #: Which of its file's variants this is.
    variant: str | None = None
    seed: Annotated[int, Field(ge=0), TABLE_NEUTRAL] = 0
    device: Annotated[str, RESULT_NEUTRAL] = "auto"
    storage: Annotated[str | None, TABLE_NEUTRAL] = None
    slurm: Annotated[Slurm, RESULT_NEUTRAL] = Field(default_factory=Slurm)
    #: Before the names of this experiment's studies, where several share a storage; set by `run`.
    studies: Annotated[str | None, RESULT_NEUTRAL] = None
    code: Annotated[dict[str, str], MayDiffer("runs", ("data set from",))] = Field(
        default_factory=dict
    )

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
            raise ValueError(f"device must be auto, cpu, mps, cuda or cuda:N, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [method.name.lower() for method in self.methods]
        reserved = sorted(RESERVED_NAMES & set(names))
        if reserved:
            raise ValueError(
                f"a method cannot be named {reserved[0]!r}: the output folder keeps that name for "
                "itself; give it another name"
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two methods are named {twice[0]!r}; give one another name")
        for method in self.methods:
            batch, each = self.training_of(method).batch_size, method.samples_per_class
            if each is not None and (batch % each or each > batch):
                raise ValueError(
                    f"method {method.name!r}: samples_per_class={each} does not divide "
                    f"batch_size={batch}; choose a divisor of {batch}"
                )
            self._check_model(method)
        self._check_claims()
        self._check_fixed()
        self._check_published(names)
        return self

    def _check_published(self, names: list[str]) -> None:
        for name in self.published_results.methods() if self.published_results else ():
            if name.lower() not in names:
                raise ValueError(
                    f"published_results name {name!r}, which is no method here; methods: "
                    f"{', '.join(names)}"
                )

    def _check_model(self, method: Method) -> None:
        try:
            self.model_of(method)
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            key = ".".join(["model", *map(str, found["loc"])])
            reason = found.get("ctx", {}).get("error", found["msg"])
            raise ValueError(f"method {method.name!r}: {key}: {reason}") from None

    def _check_claims(self) -> None:
        """Claims must be about what is measured; each has a name of its own."""
        names = [claim.name for claim in self.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two claims are named {twice[0]!r}; give one another name")
        known: dict[str, list[str]] = {
            "method": [method.name for method in self.methods],
            "category": list(self.protocol.categories),
            "metric": [*METRICS, *self.protocol.final_metrics],
        }
        for claim in self.claims:
            for one in itertools.chain.from_iterable(claim.comparisons()):
                for kind, allowed in known.items():
                    given = getattr(one, kind)
                    if given not in allowed:
                        raise ValueError(
                            f"claim {claim.name!r}: this experiment has no {kind} {given!r}."
                            f"{nearest(given, allowed)} Write one of {', '.join(allowed)}"
                        )

    def _check_fixed(self) -> None:
        """Without a search there is nobody to fill in a range."""
        if self.protocol.selects_on == "validation":
            return
        for method in self.methods:
            rates = {}
            for part in ("trunk", "embedder", "loss"):
                own = getattr(method.learning_rates, part)
                shared = getattr(self.training_of(method).optimizers, part).lr
                rates[part] = shared if own is None else own
            second = method.phase2.model_dump() if method.phase2 else {}
            rates |= method.learning_rates.loss_parts
            tunable = {"arguments": method.arguments, "miner": method.miner}
            tunable |= {"learning_rates": rates, "phase2": parse_value(second)}
            searched = next(find_searched(tunable, ""), None)
            if searched is not None or self.training_of(method).phases == "two":
                name = searched[0] if searched else "phase2"
                raise ValueError(
                    f"method {method.name!r} searches {name}, but selects_on: "
                    f"{self.protocol.selects_on} has no search; write a fixed value"
                )

    def method(self, name: str) -> Method:
        """The method of that name."""
        return next(method for method in self.methods if method.name == name)

    def model_of(self, method: Method) -> Model:
        """The model that a method trains: the experiment's, with the method's own changes."""
        return self.model.changed(method.model) if method.model else self.model

    def training_of(self, method: Method) -> Training:
        """How a method's network is trained."""
        return method.training or self.protocol.training

    def plain(self) -> dict[str, Any]:
        """Plain data from which the same experiment can be loaded again; without passwords."""
        plain = self.model_dump(mode="json", by_alias=True)
        if self.storage is not None:
            plain["storage"] = without_password(self.storage)
        return plain


def count_trainings(experiment: Experiment) -> int:
    """How often a network is trained in all: search, reproductions and final."""
    return trainings_per_method(experiment) * len(experiment.methods)


def trainings_per_method(experiment: Experiment) -> int:
    """How often a network is trained for each method."""
    protocol = experiment.protocol
    folds = protocol.split.folds
    each = {
        Stage.SEARCH: protocol.search.trials * folds,
        Stage.REPRODUCTIONS: protocol.reproductions * folds,
        Stage.FINAL: protocol.reproductions,
    }
    return sum(each[stage] for stage in protocol.stages)
