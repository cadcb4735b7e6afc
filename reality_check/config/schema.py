"""The typed form of an experiment: what the YAML may say, with types, ranges and defaults.

Unknown keys are errors. All durations are in epochs as the protocol counts them
(:attr:`Training.iterations_per_epoch` iterations), all learning rates are per optimiser step.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.values import (
    Choices,
    Range,
    Strict,
    dump_value,
    parse_tunable,
    parse_value,
)
from reality_check.final_metrics import check_name

Tunable = Annotated[
    float | Range | Choices | None,
    BeforeValidator(parse_tunable),
    PlainSerializer(dump_value),
]
Arguments = Annotated[dict[str, Any], BeforeValidator(parse_value), PlainSerializer(dump_value)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=64)]
Category = Literal["aggregate", "ensemble", "complete"]
PositiveInt = Annotated[int, Field(ge=1)]


class GlyphsData(Strict):
    """The embedded data set: distorted characters of the fonts inside matplotlib."""

    name: Name = "glyphs"
    reader: Literal["glyphs"]
    classes: Annotated[int, Field(ge=8, le=400)] = 240
    images_per_class: Annotated[int, Field(ge=2, le=1000)] = 24
    size: Annotated[int, Field(ge=16, le=128)] = 32
    seed: int = 0


class ImageFolderData(Strict):
    """A folder with one sub-folder of images per class."""

    name: Name
    reader: Literal["image_folder"]
    path: str
    size: Annotated[int, Field(ge=8, le=1024)] = 64
    channels: Literal[1, 3] = 3
    on_broken: Literal["error", "skip"] = "error"


class NpzData(Strict):
    """One .npz file: images uint8 (N, H, W[, C]), integer labels (N,), class_names."""

    name: Name
    reader: Literal["npz"]
    path: str
    images: str = "images"
    labels: str = "labels"
    class_names: str = "class_names"
    where: dict[str, int | list[int]] | None = None


Dataset = Annotated[GlyphsData | ImageFolderData | NpzData, Field(discriminator="reader")]


class Model(Strict):
    """Trunk, head and embedder. The width of the embedding is the protocol's."""

    name: Name
    trunk: str = "conv4"
    arguments: dict[str, Any] = Field(default_factory=dict)
    pooling: Literal["average", "max", "average_plus_max", "gem", "flatten"] = "average"
    normalization: Literal["none", "layer_norm", "batch_norm"] = "none"


class Optimizer(Strict):
    """One of torch's optimisers. ``lr`` may be a range: then every method searches it."""

    name: Literal["SGD", "Adam", "AdamW", "RMSprop"] = "RMSprop"
    lr: Tunable
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("lr")
    @classmethod
    def _lr(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a learning rate is needed here")
        return check_learning_rate(value)


class Optimizers(Strict):
    """The three optimisers of a fold run."""

    trunk: Optimizer
    embedder: Optimizer
    loss: Optimizer


def check_learning_rate(value: Any) -> Any:
    """Learning rates and their factors are not negative; 0 freezes the part."""
    low = value.low if isinstance(value, Range) else value
    if isinstance(value, Choices):
        low = min(number for number in value.choices if isinstance(number, int | float))
    if isinstance(low, int | float) and low < 0:
        raise ValueError(f"a learning rate or its factor must be at least 0, got {low:g}")
    return value


class Augment(Strict):
    """Random changes of a training image, each off by default."""

    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: Annotated[float, Field(ge=0, le=60)] = 0.0
    translation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    horizontal_flip: Annotated[float, Field(ge=0, le=1)] = 0.0
    resized_crop_scale: tuple[float, float] | None = None
    resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)


class Training(Strict):
    """How one fold run trains."""

    batch_size: Annotated[int, Field(ge=2)] = 32
    iterations_per_epoch: PositiveInt = 100
    max_epochs: PositiveInt = 1000
    evaluate_every: PositiveInt = 2
    patience: Annotated[int, Field(ge=0)] | None = 9
    embedding_size: PositiveInt = 128
    freeze_batchnorm: bool = True
    optimizers: Optimizers
    augmentation: Augment = Field(default_factory=Augment)
    phases: Literal["method", "two"] = "method"
    second_phase_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    autocast: Literal["none", "bf16", "fp16"] = "none"
    gradient_clip: Annotated[float, Field(gt=0)] | None = None


class Split(Strict):
    """Which classes train, validate and test (protocol section 1)."""

    rule: Literal["mlrc", "kfold"] = "mlrc"
    folds: Annotated[int, Field(ge=2, le=20)] = 4


class Search(Strict):
    """The hyper-parameter search of every method: the same budget for all."""

    trials: PositiveInt = 50
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    startup_trials: Annotated[int, Field(ge=1)] = 10


class Complete(Strict):
    """The category trained on all trainval classes."""

    round_epochs_up_to: PositiveInt = 5


class Published(Strict):
    """What the published protocol used beyond our options; only compared, in the report."""

    trunk: str | None = None
    dataset: list[str] | None = None


class Protocol(Strict):
    """The rules that all methods of an experiment share.

    ``final_metrics`` are measured on the test classes beside the protocol's three metrics; nothing
    is selected by them (names: :mod:`reality_check.final_metrics`). ``gallery`` is a number of test
    images whose nearest neighbours the report shows for each method.
    """

    name: Name
    reference: Name
    note: str = ""
    split: Split = Field(default_factory=Split)
    training: Training
    search: Search = Field(default_factory=Search)
    reproductions: PositiveInt = 10
    categories: list[Category] = Field(default=["aggregate", "ensemble"], min_length=1)
    complete: Complete = Field(default_factory=Complete)
    final_metrics: list[str] = Field(default_factory=list)
    gallery: Annotated[int, Field(ge=0, le=50)] = 0
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


class LearningRates(Strict):
    """A method's own learning rates; ``null`` means the protocol's."""

    trunk: Tunable = None
    embedder: Tunable = None
    loss: Tunable = None

    _check = field_validator("trunk", "embedder", "loss")(check_learning_rate)


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
    """A loss with its fixed arguments, its search space and, if need be, a miner."""

    name: Name
    loss: str
    arguments: Arguments = Field(default_factory=dict)
    miner: Arguments | None = None
    samples_per_class: PositiveInt = 4
    learning_rates: LearningRates = Field(default_factory=LearningRates)
    loss_weight_decay: Annotated[float, Field(ge=0)] | None = None
    normalize_embeddings: bool = True
    phase2: SecondPhase | None = None
    note: str = ""

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

    name: Name
    dataset: Dataset
    model: Model
    protocol: Protocol
    methods: list[Method] = Field(min_length=1)
    seed: Annotated[int, Field(ge=0)] = 0
    device: str = "auto"
    storage: str | None = None
    code: dict[str, str] = Field(default_factory=dict)

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
        batch = self.protocol.training.batch_size
        for method in self.methods:
            if batch % method.samples_per_class or method.samples_per_class > batch:
                raise ValueError(
                    f"method {method.name!r}: samples_per_class={method.samples_per_class} does "
                    f"not divide batch_size={batch}; choose a divisor of {batch}"
                )
        return self

    def method(self, name: str) -> Method:
        """The method of that name."""
        return next(method for method in self.methods if method.name == name)

    def plain(self) -> dict[str, Any]:
        """Plain data from which the same experiment can be loaded again."""
        return self.model_dump(mode="json", by_alias=True)
