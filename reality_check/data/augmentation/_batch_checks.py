"""Check the input of image transforms."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reality_check.utils.errors import UsageError


def check_batch(pixels: Tensor, sizes: Tensor | None) -> None:
    """Raise UsageError unless ``pixels`` is uint8 (B, H, W, C) and ``sizes`` is (B, 2) or None."""
    if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        raise UsageError(
            f"The batch is {pixels.dtype} of shape {tuple(pixels.shape)}, but it must be "
            "torch.uint8 of shape (B, H, W, C) with 1 or 3 channels C."
        )
    if sizes is not None and (tuple(sizes.shape) != (len(pixels), 2) or sizes.is_cuda):
        raise UsageError(
            f"The sizes have shape {tuple(sizes.shape)}, but they must be ({len(pixels)}, 2), a "
            "height and a width for each image, on the CPU."
        )


def check_frame(sizes: np.ndarray) -> None:
    """Raise UsageError unless all images have one size, which is necessary without a crop."""
    if (sizes != sizes[0]).any():
        low, high = sizes.min(axis=0).astype(int), sizes.max(axis=0).astype(int)
        raise UsageError(
            f"The images have different sizes, from {low[0]} x {low[1]} to {high[0]} x {high[1]} "
            "pixels (height x width); set crop_size, the side that all of them get."
        )
