"""What a protocol's YAML may say of a training: optimisers, augmentation, durations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import Self

from reality_check.config.classes import find_class
from reality_check.config.types import Name, PositiveInt, Tunable, check_learning_rate
from reality_check.config.values import Strict
from reality_check.utils.errors import UsageError

#: Known without importing torch.
_USUAL = ("SGD", "Adam", "AdamW", "RMSprop")


class Optimizer(Strict):
    """An optimiser. ``lr`` may be a range: then every method searches it.

    ``name`` is one of ``torch.optim`` or the import path of a class, which is called with the
    parameters and ``lr``, with ``weight_decay`` where it takes one, and with ``arguments``.
    """

    name: Name = "RMSprop"
    lr: Tunable
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    arguments: dict[str, Any] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in _USUAL and "." not in value:
            try:
                find_class(value, "optimizer")  # imports torch
            except UsageError as error:
                raise ValueError(str(error).removesuffix(".")) from None
        return value

    @field_validator("lr")
    @classmethod
    def _lr(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a learning rate is needed here")
        return check_learning_rate(value)

    @field_validator("arguments")
    @classmethod
    def _others(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in ("params", "lr", "weight_decay"):
            if key in value:
                raise ValueError(
                    f"{key} is no further argument; "
                    + ("it is the harness's own" if key == "params" else f"write {key} beside name")
                )
        return value


class Optimizers(Strict):
    """The three optimisers of a fold run."""

    trunk: Optimizer
    embedder: Optimizer
    loss: Optimizer


#: Keys of an augmentation that are for vectors; all others are for images.
_OF_VECTORS = ("noise", "dropout")


class Augment(Strict):
    """Random changes of a training image, each off by default, and the size of the crop.

    What each key means: :class:`reality_check.data.Augmentation`. ``noise`` and ``dropout`` are for
    vectors instead: :class:`reality_check.data.augmentation.vectors.VectorAugmentation`.
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
    noise: Annotated[float, Field(ge=0)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def of_images(self) -> dict[str, Any]:
        """The options that have a meaning for images."""
        return self.model_dump(exclude=set(_OF_VECTORS))

    def of_vectors(self) -> dict[str, Any]:
        """The options that have a meaning for vectors and other float tensors."""
        return self.model_dump(include=set(_OF_VECTORS))

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


#: Keys of a schedule that belong to some kinds of it only.
_OF_KINDS = {
    "at": ("step",),
    "every": ("step",),
    "factor": ("step",),
    "end": ("cosine", "polynomial"),
    "power": ("polynomial",),
}


class Schedule(Strict):
    """How the learning rates of all parts change during a training, by a common factor.

    ``step`` multiplies by ``factor`` after each of the epochs ``at``, or after each ``every``
    epochs. ``cosine`` and ``polynomial`` fall from 1 to ``end`` at ``max_epochs``, the latter as
    (1 - share)^power. ``per`` says whether they change each epoch or each iteration. During the
    first ``warmup_iterations`` all of it is multiplied by a line from ``warmup_start`` to 1.
    """

    kind: Literal["constant", "step", "cosine", "polynomial"] = "constant"
    at: list[PositiveInt] = Field(default_factory=list)
    every: PositiveInt | None = None
    factor: Annotated[float, Field(gt=0)] = 0.1
    end: Annotated[float, Field(ge=0, le=1)] = 0.0
    power: Annotated[float, Field(gt=0)] = 1.0
    per: Literal["epoch", "iteration"] = "epoch"
    warmup_iterations: Annotated[int, Field(ge=0)] = 0
    warmup_start: Annotated[float, Field(ge=0, le=1)] = 0.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        check_kind(self, _OF_KINDS)
        check_steps(self)
        return self


def check_kind(schedule: Any, of_kinds: Mapping[str, Sequence[str]]) -> None:
    """Make sure that a schedule has no key that belongs to other kinds of it.

    Args:
        schedule: with a ``kind``.
        of_kinds: by key the kinds that have it.

    Raises:
        ValueError: it has one.
    """
    for key, kinds in of_kinds.items():
        default = type(schedule).model_fields[key].get_default(call_default_factory=True)
        if schedule.kind not in kinds and getattr(schedule, key) != default:
            raise ValueError(
                f"{key} belongs to a schedule of the kind {' or '.join(kinds)}, not to "
                f"{schedule.kind}; remove it or change the kind"
            )


def check_steps(schedule: Any) -> None:
    """Make sure that a schedule of steps says when they are, once.

    Raises:
        ValueError: it does not.
    """
    if schedule.kind == "step" and bool(schedule.at) == (schedule.every is not None):
        raise ValueError(
            "a schedule of steps needs either at, a list of epochs, or every, a number of them"
        )
    if schedule.at != sorted(set(schedule.at)):
        raise ValueError(f"at must list epochs in rising order, each once; got {schedule.at}")


class Training(Strict):
    """How one fold run trains.

    An epoch is a number of iterations, or ``pass``: as many whole batches as the training images
    fill. ``freeze_batchnorm`` keeps the running statistics of the trunk; ``with_affine`` its scales
    and shifts too. ``freeze_trunk_epochs`` trains embedder and loss alone at first.
    ``second_phase_epochs`` lets the second phase of a method begin so many epochs before the end,
    from the latest weights, instead of when patience is exhausted, from the best ones.
    ``gradient_clip`` bounds each component of the network's gradient, ``gradient_clip_norm`` its
    length.
    """

    batch_size: Annotated[int, Field(ge=2)] = 32
    iterations_per_epoch: PositiveInt | Literal["pass"] = 100
    max_epochs: PositiveInt = 1000
    evaluate_every: PositiveInt = 2
    patience: Annotated[int, Field(ge=0)] | None = 9
    embedding_size: PositiveInt = 128
    freeze_batchnorm: bool | Literal["with_affine"] = True
    freeze_trunk_epochs: Annotated[int, Field(ge=0)] = 0
    optimizers: Optimizers
    schedule: Schedule = Field(default_factory=Schedule)
    augmentation: Augment = Field(default_factory=Augment)
    phases: Literal["method", "two"] = "method"
    second_phase_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    second_phase_epochs: PositiveInt | None = None
    autocast: Literal["none", "bf16", "fp16"] = "none"
    tf32: bool = False
    gradient_clip: Annotated[float, Field(gt=0)] | None = None
    gradient_clip_norm: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        second = self.second_phase_epochs
        if second is None:
            return self
        if self.patience is not None:
            raise ValueError(
                f"second_phase_epochs={second} fixes when the second phase begins, so nothing is "
                "stopped by patience; write patience: null"
            )
        if second >= self.max_epochs:
            raise ValueError(
                f"second_phase_epochs={second} must be less than max_epochs={self.max_epochs}, "
                "which both phases share"
            )
        return self

    def iterations(self, images: int) -> int:
        """Iterations of an epoch with so many training images; at least 1."""
        if self.iterations_per_epoch == "pass":
            return max(1, images // self.batch_size)
        return self.iterations_per_epoch

    def phase_epochs(self, two_phases: bool) -> tuple[int, int]:
        """Epochs of the first and the second phase where their lengths are fixed."""
        second = (self.second_phase_epochs or 0) if two_phases else 0
        return self.max_epochs - second, second
