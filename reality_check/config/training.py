"""What a protocol's YAML may say of a training: optimisers, augmentation, durations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from reality_check.config.types import PositiveInt, Tunable, check_learning_rate
from reality_check.config.values import Strict


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
