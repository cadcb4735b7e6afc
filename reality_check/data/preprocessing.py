"""What a trunk wants its input to look like: value range, order of channels, mean and deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reality_check.errors import UsageError


@dataclass(frozen=True)
class Preprocessing:
    """How pixels become the numbers that a trunk was made for.

    Each channel is ``(scale * image / 255 - mean) / std`` of the uint8 image; ``mean`` and ``std``
    stand in the order of the trunk's channels, so in the order blue, green, red where ``bgr``. One
    value serves all channels. A grey image is repeated where three are given.

    Args:
        mean: one value or one for each of the three channels, in the units of ``scale``.
        std: the same, positive.
        scale: the largest value an image has before ``mean`` is taken off: 1 as in torchvision, 255
            for trunks converted from Caffe.
        bgr: whether the trunk takes blue, green, red instead of red, green, blue.

    Raises:
        UsageError: if a value is not finite, ``std`` or ``scale`` is not positive or the lengths
            are neither 1 nor 3.
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    scale: float = 1.0
    bgr: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in (1, 3):
                raise UsageError(
                    f"{name}={values} has {len(values)} values; give one, or one for each of the "
                    "3 channels."
                )
            if not all(math.isfinite(value) for value in values):
                raise UsageError(f"{name}={values}, but every value must be finite.")
        if min(self.std) <= 0:
            raise UsageError(f"std={self.std}, but every value must be greater than 0.")
        if not 0 < self.scale < math.inf:
            raise UsageError(f"scale={self.scale}, but it must be greater than 0; write 1 or 255.")
