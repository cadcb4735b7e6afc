"""Helpers of all corruptions: random generators for each image, and checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from torch import Tensor

from pml_extensions.evaluation._image_operations import Image

#: A numpy array or a torch tensor; the result has the same type as the argument.
Images = TypeVar("Images", NDArray[np.uint8], Tensor)
#: A fixed number, or the bounds of a number that is drawn for each image.
Range = float | tuple[float, float]


def each_image(
    images: Images, seed: int, first_index: int, change: Callable[[Image, Generator], Image]
) -> Images:
    """Apply ``change`` to a copy of each image, with a random generator for each image.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Seeds the generators, together with the index of the image.
        first_index: Index of ``images[0]``.
        change: Takes an image, which it may modify, and a generator; returns an image of the same
            shape.

    Raises:
        ValueError: An argument is not allowed.
    """
    if isinstance(images, Tensor):
        changed = each_image(images.detach().cpu().numpy(), seed, first_index, change)
        return torch.from_numpy(changed).to(images.device)
    check_images("images", images)
    seed, first_index = whole_number("seed", seed, 0), whole_number("first_index", first_index, 0)
    result = np.empty(images.shape, np.uint8)
    for i, image in enumerate(images):
        result[i] = change(np.array(image), default_rng((seed, first_index + i)))
    return result


def check_images(name: str, images: NDArray[np.uint8] | Tensor) -> None:
    """Raise ValueError unless ``images`` are uint8 of shape (N, H, W, C) with H, W, C > 0."""
    if not isinstance(images, np.ndarray | Tensor):
        kind = type(images).__name__
        raise ValueError(f"{name} must be a numpy array or a torch tensor, but got a {kind}.")
    dtype = str(images.dtype).removeprefix("torch.")
    if dtype != "uint8" or images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(
            f"{name} must be uint8 of shape (N, H, W, C), but got {dtype} of shape "
            f"{tuple(images.shape)}."
        )


def whole_number(name: str, value: int, lowest: int, highest: float = math.inf) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is in ``lowest..highest``."""
    if isinstance(value, tuple | list):
        raise ValueError(f"{name} must be a single number, but got {name}={value!r}.")
    return whole_number_range(name, value, lowest, highest)[0]


def whole_number_range(
    name: str, value: Range, lowest: int, highest: float = math.inf
) -> tuple[int, int]:
    """Return the bounds of ``value`` as ints, or raise ValueError unless in ``lowest..highest``."""
    low, high = number_range(name, value, lowest, highest)
    if low != int(low) or high != int(high):
        raise ValueError(f"{name} must be a whole number, or two, but got {name}={value!r}.")
    return int(low), int(high)


def number_range(
    name: str, value: Range, lowest: float, highest: float = math.inf
) -> tuple[float, float]:
    """Return the bounds of ``value``, or raise ValueError unless in ``lowest..highest``."""
    low, high = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value)
    are_numbers = _is_number(low) and _is_number(high)
    if not are_numbers or not lowest <= low <= high <= highest or high == math.inf:
        upper = "finite" if highest == math.inf else f"at most {highest}"
        raise ValueError(
            f"{name} must be a number or a pair (low, high), at least {lowest} and {upper}, "
            f"but got {name}={value!r}."
        )
    return low, high


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
