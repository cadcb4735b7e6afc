"""The keys of ``training`` in a protocol's YAML: optimisers, augmentation, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from reality_check.config.classes import find_class
from reality_check.config.types import (
    RESULT_NEUTRAL,
    Fixed,
    Name,
    PositiveInt,
    Searchable,
    Tunable,
    check_choices,
    check_learning_rate,
)
from reality_check.config.values import Strict, choices_of
from reality_check.utils.errors import UsageError

#: Fraction of ``max_epochs`` for a second phase whose length is not set.
_SECOND_PHASE_SHARE = 0.25
#: Optimisers that are known without importing torch.
_COMMON_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop")

_Fraction = Annotated[float, Field(ge=0, le=1)]
_Jitter = Annotated[float, Field(ge=0, le=10)]


class ParameterGroup(Strict):
    """What some parameters of an optimiser have of their own."""

    lr_factor: NonNegativeFloat = 1.0
    """Factor of the learning rate."""
    weight_decay: NonNegativeFloat | None = None
    """L2 penalty instead of the optimiser's; null keeps that."""


class Optimizer(Strict):
    """An optimiser. Its class is called with ``weight_decay`` if it takes one."""

    name: Name = "RMSprop"
    """One of torch.optim, or the import path of a class."""
    lr: Tunable
    """Learning rate; a range is searched by every method."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 penalty (AdamW: decoupled)."""
    arguments: Fixed = Field(default_factory=dict)
    """Further keyword arguments, such as momentum."""
    groups: dict[re.Pattern[str], ParameterGroup] = Field(default_factory=dict)
    """By regular expressions, which are searched in full names of parameters such as
    blocks.0.norm1.weight: the first that matches counts."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if value not in _COMMON_OPTIMIZERS and "." not in value:
            try:
                find_class(value, "optimizer")  # imports torch
            except UsageError as error:
                raise ValueError(str(error).removesuffix(".")) from None
        return value

    @field_validator("lr")
    @classmethod
    def _check_lr(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a learning rate is needed here")
        return check_learning_rate(value)

    @field_validator("arguments")
    @classmethod
    def _check_arguments(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in ("params", "lr", "weight_decay"):
            if key in value:
                raise ValueError(
                    f"{key} is not a further argument; "
                    + ("it is the harness's own" if key == "params" else f"write {key} beside name")
                )
        return value


class TrunkOptimizer(Optimizer):
    """The optimiser of a trunk, whose layers can have learning rates of their own."""

    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Factor of the learning rate from each layer to the one before it; null: none."""


class Optimizers(Strict):
    """The three optimisers of a fold run."""

    trunk: TrunkOptimizer
    """Optimiser of the trunk's parameters."""
    embedder: Optimizer
    """Optimiser of the parameters of head and embedder."""
    loss: Optimizer
    """Optimiser of the loss's own parameters, such as proxies."""


#: Keys of an augmentation that are for vectors; all others are for images.
_VECTOR_KEYS = ("noise", "dropout")


class Augment(Strict):
    """Random changes of a training image, each off by default, and the size of the crop.

    The keys are explained in :class:`reality_check.data.Augmentation`; ``noise`` and ``dropout``,
    which are for vectors, in
    :class:`reality_check.data.augmentation.vectors.VectorAugmentation`.
    """

    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Largest angle, in degrees."""
    scale: tuple[float, float] = (1.0, 1.0)
    """[low, high]: enlargement of the content, drawn log-uniformly."""
    shear: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Largest shear angle along each axis, in degrees."""
    translation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Largest shift along each axis, as a fraction of the side."""
    horizontal_flip: _Fraction = 0.0
    """Probability of mirroring left and right."""
    resized_crop_scale: tuple[float, float] | None = None
    """[low, high]: fraction of the area that a random crop keeps."""
    resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """[low, high]: width / height of that crop."""
    random_crop: bool = False
    """Whether the crop is at a random position instead of the centre."""
    brightness: _Jitter = 0.0
    """For b, the brightness factor is drawn from [1 - b, 1 + b]."""
    contrast: _Jitter = 0.0
    """Like brightness, for blending with the mean grey."""
    saturation: _Jitter = 0.0
    """Like brightness, for blending with the grey image."""
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Largest rotation of the hue, in full circles."""
    grayscale: _Fraction = 0.0
    """Probability of turning a colour image grey."""
    crop_size: PositiveInt | None = None
    """Side of the images that enter the trunk, in pixels; null keeps their size."""
    resize: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    """Size before the crop: the short side, or [height, width], in pixels."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Interpolation of resizing and of crops."""
    noise: NonNegativeFloat = 0.0
    """For vectors: deviation of added noise, as a fraction of the vector's root mean square."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """For vectors: probability of setting a value to 0."""

    def of_images(self) -> dict[str, Any]:
        """Return the options that apply to images."""
        return self.model_dump(exclude=set(_VECTOR_KEYS))

    def of_vectors(self) -> dict[str, Any]:
        """Return the options that apply to vectors and other float tensors."""
        return self.model_dump(include=set(_VECTOR_KEYS))

    @field_validator("scale", "resized_crop_scale", "resized_crop_ratio")
    @classmethod
    def _check_pair(
        cls, pair: tuple[float, float] | None, info: ValidationInfo
    ) -> tuple[float, float] | None:
        upper = 1 if info.field_name == "resized_crop_scale" else math.inf
        if pair is not None and not (0 < pair[0] <= pair[1] <= upper and math.isfinite(pair[1])):
            limit = "" if math.isinf(upper) else f" <= {upper}"
            raise ValueError(f"must be [low, high] with 0 < low <= high{limit}, got {list(pair)}")
        return pair

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.random_crop and self.resized_crop_scale is not None:
            raise ValueError("random_crop and resized_crop_scale exclude each other; leave one out")
        if self.random_crop and self.crop_size is None:
            raise ValueError("random_crop needs crop_size, the side of the crop in pixels")
        if self.interpolation == "bicubic" and (self.rotation or self.shear):
            raise ValueError("interpolation: bicubic does not go with rotation or shear")
        if self.resize is not None and self.crop_size is None:
            raise ValueError("resize needs crop_size, the side of the crop in pixels")
        short_side = min(self.resize) if isinstance(self.resize, tuple) else self.resize
        if short_side is not None and self.crop_size is not None and short_side < self.crop_size:
            raise ValueError(f"resize ({short_side}) must be at least crop_size ({self.crop_size})")
        return self


#: Keys that only some kinds of schedules have, and these kinds.
_KINDS_OF_KEYS = {
    "at": ("step",),
    "every": ("step",),
    "factor": ("step",),
    "end": ("cosine", "polynomial"),
    "power": ("polynomial",),
}


class Schedule(Strict):
    """A factor by which the learning rates of all parts change during training.

    ``cosine`` and ``polynomial`` fall from 1 to ``end`` at ``max_epochs``; ``polynomial`` falls as
    (1-t)^power for the fraction t of the training. During the first ``warmup_iterations``, the
    factor is also multiplied by a number that rises linearly from ``warmup_start`` to 1.
    """

    kind: Literal["constant", "step", "cosine", "polynomial"] = "constant"
    """constant, step, cosine or polynomial."""
    at: list[PositiveInt] = Field(default_factory=list)
    """step: the epochs after which the learning rates are multiplied by factor."""
    every: PositiveInt | None = None
    """step: the number of epochs between multiplications by factor."""
    factor: PositiveFloat = 0.1
    """step: the number by which the learning rates are multiplied."""
    end: _Fraction = 0.0
    """cosine, polynomial: the factor reached at max_epochs."""
    power: PositiveFloat = 1.0
    """polynomial: the exponent."""
    per: Literal["epoch", "iteration"] = "epoch"
    """Whether cosine and polynomial change each epoch or each iteration."""
    warmup_iterations: NonNegativeInt = 0
    """Number of iterations at the start in which the rates rise."""
    warmup_start: _Fraction = 0.0
    """The factor at the start of the rise."""

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        check_kind(self, _KINDS_OF_KEYS)
        check_steps(self)
        return self


def check_kind(schedule: Any, kinds_of_keys: Mapping[str, Sequence[str]]) -> None:
    """Raise ``ValueError`` if a schedule has a key that belongs to other kinds."""
    for key, kinds in kinds_of_keys.items():
        default = type(schedule).model_fields[key].get_default(call_default_factory=True)
        if schedule.kind not in kinds and getattr(schedule, key) != default:
            raise ValueError(
                f"{key} belongs to a schedule of the kind {' or '.join(kinds)}, not to "
                f"{schedule.kind}; remove it or change the kind"
            )


def check_steps(schedule: Any) -> None:
    """Raise ``ValueError`` unless a schedule of steps has either ``at`` or ``every``."""
    if schedule.kind == "step" and bool(schedule.at) == (schedule.every is not None):
        raise ValueError(
            "a schedule of steps needs either at, a list of epochs, or every, a number of them"
        )
    if schedule.at != sorted(set(schedule.at)):
        raise ValueError(f"at must list epochs in rising order, each once; got {schedule.at}")


class GpuSettings(Strict):
    """Settings that make training on a GPU faster and change results only by rounding.

    They have no effect on a CPU.
    """

    cuda_graph: bool | Literal["auto"] = "auto"
    """auto, true: the operations of a step are recorded once and launched together, if that gives
    the results of plain steps; false: never."""
    channels_last: Annotated[bool, BeforeValidator(lambda v: False if v == "auto" else v)] = False
    """Whether convolutions use the channels-last memory layout."""
    compile: bool = False
    """Whether torch.compile compiles the network."""

    def described(self) -> str:
        """Return the enabled settings in words; ``"plain"`` if there are none."""
        names = {
            "CUDA graph": self.cuda_graph,
            "channels_last": self.channels_last,
            "torch.compile": self.compile,
        }
        return ", ".join(name for name, on in names.items() if on) or "plain"


class Training(Strict):
    """How one fold run trains."""

    batch_size: Searchable[Annotated[int, Field(ge=2)]] = 32
    """Images of a batch; choices are searched."""
    iterations_per_epoch: PositiveInt | Literal["pass"] = 100
    """Batches of an epoch; pass: as many complete ones as the training images fill."""
    max_epochs: PositiveInt = 1000
    """Maximum number of epochs, of all phases together."""
    evaluate_every: PositiveInt = 2
    """Epochs between two validations."""
    patience: NonNegativeInt | None = 9
    """Number of epochs without a better validation after which a phase ends; null: no phase ends
    early."""
    embedding_size: PositiveInt = 128
    """Width of the embedding; an ensemble has one for each fold."""
    freeze_batchnorm: bool | Literal["with_affine"] = True
    """Whether to freeze the running statistics of the trunk's BatchNorms; with_affine freezes their
    scales and shifts, too."""
    freeze_trunk_epochs: NonNegativeInt = 0
    """Number of epochs at the start that train only embedder and loss."""
    optimizers: Optimizers
    """The optimisers of trunk, embedder and loss."""
    schedule: Schedule = Field(default_factory=Schedule)
    """How the learning rates change."""
    augmentation: Augment = Field(default_factory=Augment)
    """Random changes of a training image."""
    phases: Literal["method", "two"] = "method"
    """method: methods that define a second phase have one. two: all methods have one."""
    second_phase_epochs: PositiveInt | None = None
    """Number of epochs before the end at which a second phase begins, from the latest weights,
    instead of when patience is exhausted, from the best ones."""
    autocast: Literal["none", "bf16", "fp16"] = "none"
    """Mixed precision of the network; losses compute in float32."""
    tf32: bool = False
    """Whether float32 products on a GPU may use TF32, with 10 bits of mantissa instead of 23."""
    gpu: Annotated[GpuSettings, RESULT_NEUTRAL] = Field(default_factory=GpuSettings)
    """Settings for faster training on a GPU: docs/gpu.md."""
    sub_batch_size: PositiveInt | None = None
    """Largest number of images that a process embeds at once, so that large batches fit in memory;
    null: all. Gradients are those of the batch: docs/training.md."""
    activation_checkpointing: bool = False
    """Whether the trunk's activations are computed again for the gradient instead of kept."""
    gradient_clip: PositiveFloat | None = None
    """Bounds each component of the network's gradient."""
    gradient_clip_norm: PositiveFloat | None = None
    """Bounds the length of the network's gradient."""
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Decay of an exponential moving average of the network's weights, which is what is evaluated
    and kept; null: none."""

    @field_validator("batch_size")
    @classmethod
    def _check_batch_size(cls, value: Any) -> Any:
        return check_choices(value, 2)

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
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

    @property
    def batch_sizes(self) -> list[int]:
        """All batch sizes that are tried; a single one if it is not searched."""
        return choices_of(self.batch_size)

    def filled(self, params: Mapping[str, Any]) -> Training:
        """Return these settings with the batch size of a trial's parameters, if it is searched."""
        size = params.get("training.batch_size", self.batch_sizes[0])
        return self.model_copy(update={"batch_size": size})

    def iterations(self, images: int) -> int:
        """Return the number of iterations per epoch for a number of training images."""
        if self.iterations_per_epoch == "pass":
            return max(1, images // self.batch_sizes[0])
        return self.iterations_per_epoch

    def phase_epochs(self, two_phases: bool) -> tuple[int, int]:
        """Return the maximum number of epochs of the first phase, and the rest for the second."""
        second = self.second_phase_epochs or max(1, round(self.max_epochs * _SECOND_PHASE_SHARE))
        first = max(1, self.max_epochs - second) if two_phases else self.max_epochs
        return first, self.max_epochs - first

    def selects_among(self, two_phases: bool) -> int:
        """Return the number of epochs among which the best one is selected.

        They are those of the first phase if the second starts from the best weights of the first.
        """
        return self.phase_epochs(two_phases and self.second_phase_epochs is None)[0]
