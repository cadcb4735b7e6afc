"""The input format of a trunk: value range, order of channels, mean and deviation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from reality_check.utils.errors import UsageError


@dataclass(frozen=True)
class Preprocessing:
    """How pixels are converted to the input of a trunk.

    Each channel is ``(scale * image / 255 - mean) / std`` of the uint8 image. ``mean`` and ``std``
    are in the order of the trunk's channels, which is blue, green, red if ``bgr``. A single value
    applies to all channels; with three values, a grey image is repeated three times.

    Args:
        mean: one value, or one for each of the three channels, in the units of ``scale``.
        std: the same, positive.
        scale: the largest value of an image before ``mean`` is subtracted: 1 as in torchvision, 255
            for trunks converted from Caffe.
        bgr: whether the trunk takes blue, green, red instead of red, green, blue.

    Raises:
        UsageError: if a value is not finite, ``std`` or ``scale`` is not positive, or a length is
            neither 1 nor 3.
    """

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    scale: float = 1.0
    bgr: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in (1, 3):
                raise UsageError(
                    f"{name}={values} has {len(values)} values; give one, or one for each of the "
                    "3 channels."
                )
            if not all(map(math.isfinite, values)):
                raise UsageError(f"{name}={values}, but every value must be finite.")
        if min(self.std) <= 0:
            raise UsageError(f"std={self.std}, but every value must be greater than 0.")
        if not 0 < self.scale < math.inf:
            raise UsageError(f"scale={self.scale}, but it must be greater than 0; write 1 or 255.")

    def normalize(self, images: Tensor) -> Tensor:
        """Convert pixel values to the input of the trunk.

        Args:
            images: float32, shape (B, C, H, W) with C = 1 (grey) or 3 (RGB), values 0..255. They
                may be overwritten.

        Returns:
            float32, shape (B, C, H, W), or (B, 3, H, W) if ``mean`` or ``std`` has three values.
        """
        factor, shift = _constants(self, images.device)
        images = images.flip(1) if self.bgr and images.shape[1] == 3 else images
        if factor.numel() > images.shape[1]:  # a grey image becomes three channels
            return images.mul(factor).add_(shift)
        return images.mul_(factor).add_(shift)


@lru_cache(maxsize=64)
def _constants(preprocessing: Preprocessing, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the factor and the shift that normalise 0..255, each (C, 1, 1) with C = 1 or 3."""
    mean = torch.tensor(preprocessing.mean, dtype=torch.float64)
    std = torch.tensor(preprocessing.std, dtype=torch.float64)
    mean, std = torch.broadcast_tensors(mean, std)
    pair = torch.stack([preprocessing.scale / 255 / std, -mean / std]).float()
    factor, shift = pair[:, :, None, None].to(device)
    return factor, shift
