"""What all corruptions share: a generator for each image, and the ranges that users give."""

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

#: Of images in and out: a numpy array or a torch tensor.
Images = TypeVar("Images", NDArray[np.uint8], Tensor)
#: A fixed number, or the lowest and the highest of the numbers to draw from for each image.
Range = float | tuple[float, float]


def each_image(
    images: Images, seed: int, first_index: int, change: Callable[[Image, Generator], Image]
) -> Images:
    """Return ``change(copy of the image, generator)`` of each image.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: With the index of an image, it decides its generator.
        first_index: Index of ``images[0]``.
        change: Returns an image of the same shape.

    Raises:
        ValueError: An argument is not as above.
    """
    if isinstance(images, Tensor):
        changed = each_image(images.detach().cpu().numpy(), seed, first_index, change)
        return torch.from_numpy(changed).to(images.device)
    check_images("images", images)
    seed, first_index = whole("seed", seed, 0), whole("first_index", first_index, 0)
    result = np.empty(images.shape, np.uint8)
    for i, image in enumerate(images):
        result[i] = change(np.array(image), default_rng((seed, first_index + i)))
    return result


def check_images(name: str, images: NDArray[np.uint8] | Tensor) -> None:
    """Raise ValueError unless ``images`` are uint8, shape (N, H, W, C), of at least one pixel."""
    if not isinstance(images, np.ndarray | Tensor):
        given = type(images).__name__
        raise ValueError(f"{name} must be a numpy array or a torch tensor, but got a {given}.")
    dtype = str(images.dtype).removeprefix("torch.")
    if dtype != "uint8" or images.ndim != 4 or 0 in images.shape[1:]:
        raise ValueError(
            f"{name} must be uint8 of shape (N, H, W, C), but got {dtype} of shape "
            f"{tuple(images.shape)}."
        )


def whole(name: str, value: int, lowest: int, highest: float = math.inf) -> int:
    """Return a whole number in ``lowest..highest``, or raise ValueError."""
    if isinstance(value, tuple | list):
        raise ValueError(f"{name} must be a single number, but got {name}={value!r}.")
    return whole_range(name, value, lowest, highest)[0]


def whole_range(name: str, value: Range, lowest: int, highest: float = math.inf) -> tuple[int, int]:
    """Return both ends of ``value``, whole numbers in ``lowest..highest``, or raise ValueError."""
    low, high = number_range(name, value, lowest, highest)
    if low != int(low) or high != int(high):
        raise ValueError(f"{name} must be a whole number, or two, but got {name}={value!r}.")
    return int(low), int(high)


def number_range(
    name: str, value: Range, lowest: float, highest: float = math.inf
) -> tuple[float, float]:
    """Return both ends of ``value``, finite and in ``lowest..highest``, or raise ValueError."""
    low, high = value if isinstance(value, tuple | list) and len(value) == 2 else (value, value)
    numbers = _is_number(low) and _is_number(high)
    if not numbers or not lowest <= low <= high <= highest or high == math.inf:
        upper = "finite" if highest == math.inf else f"at most {highest}"
        raise ValueError(
            f"{name} must be a number or a pair (low, high), at least {lowest} and {upper}, "
            f"but got {name}={value!r}."
        )
    return low, high


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
