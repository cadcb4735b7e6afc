"""What augmentation accepts, in sentences."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from reality_check.data.augmentation._resample import Interpolation
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

_RANGES = {
    "rotation": (0, 180),
    "shear": (0, 80),
    "translation": (0, 1),
    "horizontal_flip": (0, 1),
    "brightness": (0, math.inf),
    "contrast": (0, math.inf),
    "saturation": (0, math.inf),
    "hue": (0, 0.5),
    "grayscale": (0, 1),
}
_PAIRS = {"scale": math.inf, "resized_crop_scale": 1, "resized_crop_ratio": math.inf}


def check_options(**options: Any) -> None:
    """Raise UsageError for the first option that is out of its range or contradicts another."""
    for name, value in options.items():
        if name in _RANGES:
            _check_range(name, value, *_RANGES[name])
        elif name in _PAIRS and value is not None:
            _check_pair(name, value, _PAIRS[name])
    _check_sizes(options["crop_size"], options["resize"])
    _check_interpolation(options)
    if options.get("random_crop"):
        _check_random_crop(options)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high or math.isinf(value):
        limits = f"at least {low}" if math.isinf(high) else f"within {low}..{high}"
        raise UsageError(f"{name}={value}, but it must be finite, {limits} (0 turns it off).")


def _check_pair(name: str, pair: tuple[float, float], most: float) -> None:
    low, high = pair
    if not 0 < low <= high <= most or math.isinf(high):
        limit = "" if math.isinf(most) else f" <= {most}"
        raise UsageError(
            f"{name}={tuple(pair)}, but it must be (low, high) with 0 < low <= high{limit}."
        )


def _check_sizes(crop_size: int | None, resize: int | tuple[int, int] | None) -> None:
    if crop_size is not None and crop_size < 1:
        raise UsageError(f"crop_size={crop_size}, but it must be at least 1 pixel (or None).")
    if resize is None:
        return
    if crop_size is None:
        raise UsageError(
            f"resize={resize}, but without crop_size; give it too, the side that results have."
        )
    least = min(resize) if isinstance(resize, tuple) else resize
    if least < crop_size:
        raise UsageError(
            f"resize={resize}, but it must be at least {crop_size} pixels, the crop_size."
        )


def _check_interpolation(options: dict[str, Any]) -> None:
    given, known = options["interpolation"], get_args(Interpolation)
    if given not in known:
        raise UsageError(
            f"interpolation={given!r}, but it must be {' or '.join(known)}."
            + nearest(str(given), known)
        )
    if given == "bicubic" and (options.get("rotation") or options.get("shear")):
        raise UsageError(
            "interpolation='bicubic' does not go with rotation or shear; write 'bilinear', or set "
            "both to 0."
        )


def _check_random_crop(options: dict[str, Any]) -> None:
    if options["crop_size"] is None:
        raise UsageError("random_crop is on, but without crop_size; give the crop's side.")
    if options["resized_crop_scale"] is not None:
        raise UsageError(
            "random_crop and resized_crop_scale are both given; leave one of them out."
        )


def check_batch(pixels: Tensor, sizes: Tensor | None) -> None:
    """Raise UsageError unless ``pixels`` is uint8 (B, H, W, C) and ``sizes`` (B, 2)."""
    if pixels.dtype != torch.uint8 or pixels.ndim != 4:
        raise UsageError(
            f"The batch is {pixels.dtype} of shape {tuple(pixels.shape)}, but it must be "
            "torch.uint8 of shape (B, H, W, C)."
        )
    channels = pixels.shape[3]
    if channels not in (1, 3):
        raise UsageError(f"The images have {channels} channels, but they must have 1 or 3.")
    if sizes is not None and (tuple(sizes.shape) != (len(pixels), 2) or sizes.is_cuda):
        raise UsageError(
            f"The sizes have shape {tuple(sizes.shape)}, but they must be ({len(pixels)}, 2), a "
            "height and a width for each image, on the CPU."
        )


def check_frame(sizes: np.ndarray) -> None:
    """Raise UsageError unless all images have one size, which then is the result's."""
    if (sizes != sizes[0]).any():
        low, high = sizes.min(axis=0).astype(int), sizes.max(axis=0).astype(int)
        raise UsageError(
            f"The images have different sizes, from {low[0]} x {low[1]} to {high[0]} x {high[1]} "
            "pixels (height x width); set crop_size, the side that all of them get."
        )
