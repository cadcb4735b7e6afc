"""What corruptions do to one image, given their random numbers; images are uint8 (H, W, C)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

Image = NDArray[np.uint8]


def to_uint8(values: NDArray[np.floating]) -> Image:
    """Return ``values`` rounded to the nearest integer (half to even) and clipped to 0..255."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def shear(image: Image, x_degrees: float, y_degrees: float) -> Image:
    """Return the image sheared about its centre: first along y, then along x.

    A point (x, y), seen from the centre, moves to (x + tan(x_degrees) y', y') with
    y' = y + tan(y_degrees) x. Values between pixels are bilinear; outside the image is black.
    """
    height, width = image.shape[:2]
    y, x = np.meshgrid(_centred(height), _centred(width), indexing="ij")
    source_x = x - math.tan(math.radians(x_degrees)) * y
    source_y = y - math.tan(math.radians(y_degrees)) * source_x
    grid = np.stack((source_x * (2 / width), source_y * (2 / height)), axis=-1)
    channels = torch.from_numpy(image.transpose(2, 0, 1).astype(np.float64))
    sheared = F.grid_sample(channels[None], torch.from_numpy(grid)[None], align_corners=False)
    return to_uint8(sheared[0].numpy()).transpose(1, 2, 0)


def _centred(size: int) -> NDArray[np.float64]:
    return np.arange(size, dtype=np.float64) - (size - 1) / 2


def jigsaw_sources(
    rows: int, columns: int, max_steps: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return which cell comes to lie at each place, shape (rows, columns), cells counted by row.

    Each place has 0 to ``max_steps`` steps. In each of ``max_steps`` rounds all places are visited
    by row: one with a step left looks in a random direction (up, down, left, right), and if there
    is a place with a step left, both swap what they hold and have a step less.
    """
    sources = np.arange(rows * columns).reshape(rows, columns)
    steps = generator.integers(0, max_steps, (rows, columns), endpoint=True)
    directions = generator.integers(0, 4, (max_steps, rows, columns))
    for step, row, column in np.ndindex(max_steps, rows, columns):
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[directions[step, row, column]]
        here, there = (row, column), (row + down, column + right)
        inside = 0 <= there[0] < rows and 0 <= there[1] < columns
        if inside and steps[here] > 0 and steps[there] > 0:
            sources[here], sources[there] = sources[there], sources[here]
            steps[here] -= 1
            steps[there] -= 1
    return sources


def rearrange(image: Image, sources: NDArray[np.int64]) -> Image:
    """Return the image with its cells at new places.

    Args:
        image: Where the cells do not divide it, it gets a black border, half on either side, which
            is cut off again afterwards.
        sources: Which cell comes to lie at each place, shape (rows, columns).
    """
    height, width, channels = image.shape
    rows, columns = sources.shape
    cell_height, cell_width = -(-height // rows), -(-width // columns)
    top, left = (cell_height * rows - height) // 2, (cell_width * columns - width) // 2
    padded = np.zeros((cell_height * rows, cell_width * columns, channels), np.uint8)
    inner = (slice(top, top + height), slice(left, left + width))
    padded[inner] = image
    cells = padded.reshape(rows, cell_height, columns, cell_width, channels).swapaxes(1, 2)
    moved = cells.reshape(-1, cell_height, cell_width, channels)[sources]
    return moved.swapaxes(1, 2).reshape(padded.shape)[inner]


def shift_hue_and_saturation(image: Image, hue: float, saturation: float) -> Image:
    """Return an RGB image with ``hue`` and ``saturation`` added in the HSV space.

    Args:
        image: Shape (H, W, 3).
        hue: In degrees.
        saturation: On the scale 0..255, to which the sum is clipped. Grey pixels have hue 0.
    """
    red, green, blue = (image[..., c].astype(np.float32) for c in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    divisor = np.maximum(chroma, 1)
    sixths = np.where(
        value == red,
        (green - blue) / divisor,
        np.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    new_saturation = np.clip(255 * chroma / np.maximum(value, 1) + np.float32(saturation), 0, 255)
    new_chroma = value * new_saturation / 255
    # A channel falls from full to none while the hue moves from one to two sixths away from it.
    away = np.stack([_hue_distance(sixths + np.float32(hue / 60), peak) for peak in (0, 2, 4)], -1)
    return to_uint8(value[..., None] - new_chroma[..., None] * np.clip(away - 1, 0, 1))


def _hue_distance(sixths: NDArray[np.float32], peak: int) -> NDArray[np.float32]:
    """Return how far a hue is from ``peak`` on a circle of length 6."""
    return np.abs((sixths - np.float32(peak) + 3) % 6 - 3)


@cache
def disc_kernel(radius: int, sigma: float) -> torch.Tensor:
    """Return a disc smoothed by a Gaussian, summing to 1, shape (S, S) with S odd.

    Args:
        radius: Of the disc, all points with x^2 + y^2 <= radius^2.
        sigma: Standard deviation of the Gaussian, cut off at one pixel up to radius 8, else at two.
    """
    reach = 1 if radius <= 8 else 2
    offsets = torch.arange(-radius, radius + 1)
    disc = (offsets.square()[:, None] + offsets.square() <= radius**2).double()
    taps = torch.exp(-torch.arange(-reach, reach + 1).double().square() / (2 * sigma**2))
    # Products of the smallest are denormal in float32: ten times the time of a convolution.
    taps[taps < 1e-12] = 0
    smoothed = F.conv2d(disc[None, None], torch.outer(taps, taps)[None, None], padding=2 * reach)
    return (smoothed / smoothed.sum())[0, 0]


def convolve(image: Image, kernel: torch.Tensor) -> Image:
    """Return each channel convolved with a symmetric kernel, the image mirrored at its border.

    Args:
        image: The pixels at the border are not repeated when mirrored.
        kernel: Shape (S, S) with S odd.
    """
    margin = len(kernel) // 2
    padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    channels = torch.from_numpy(padded.transpose(2, 0, 1).astype(np.float32))
    blurred = F.conv2d(channels[:, None], kernel.float()[None, None])
    return to_uint8(blurred[:, 0].numpy()).transpose(1, 2, 0)
