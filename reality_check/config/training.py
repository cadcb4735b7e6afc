"""What a protocol's YAML may say of a training: optimisers, augmentation, durations."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

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
    """Random changes of a training image, each off by default, and the size of the crop.

    What each key means: :class:`reality_check.data.Augmentation`.
    """

    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: Annotated[float, Field(ge=0, le=60)] = 0.0
    translation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    horizontal_flip: Annotated[float, Field(ge=0, le=1)] = 0.0
    resized_crop_scale: tuple[float, float] | None = None
    resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    random_crop: bool = False
    brightness: Annotated[float, Field(ge=0, le=10)] = 0.0
    contrast: Annotated[float, Field(ge=0, le=10)] = 0.0
    saturation: Annotated[float, Field(ge=0, le=10)] = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    grayscale: Annotated[float, Field(ge=0, le=1)] = 0.0
    crop_size: PositiveInt | None = None
    resize: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    @field_validator("scale", "resized_crop_scale", "resized_crop_ratio")
    @classmethod
    def _pair(
        cls, pair: tuple[float, float] | None, info: ValidationInfo
    ) -> tuple[float, float] | None:
        most = 1 if info.field_name == "resized_crop_scale" else math.inf
        if pair is not None and not (0 < pair[0] <= pair[1] <= most and math.isfinite(pair[1])):
            limit = "" if math.isinf(most) else f" <= {most}"
            raise ValueError(f"must be [low, high] with 0 < low <= high{limit}, got {list(pair)}")
        return pair

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.random_crop and self.resized_crop_scale is not None:
            raise ValueError("random_crop and resized_crop_scale exclude each other; leave one out")
        if self.random_crop and self.crop_size is None:
            raise ValueError("random_crop needs crop_size, the side of the crop in pixels")
        if self.interpolation == "bicubic" and (self.rotation or self.shear):
            raise ValueError("interpolation: bicubic does not go with rotation or shear")
        if self.resize is not None and self.crop_size is None:
            raise ValueError("resize needs crop_size, the side of the crop in pixels")
        least = min(self.resize) if isinstance(self.resize, tuple) else self.resize
        if least is not None and self.crop_size is not None and least < self.crop_size:
            raise ValueError(f"resize ({least}) must be at least crop_size ({self.crop_size})")
        return self


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
