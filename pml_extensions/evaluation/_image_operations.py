"""Operations of the corruptions on one image, uint8 of shape (H, W, C)."""

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
    """Shear the image about its centre, first along y and then along x.

    A point (x, y) relative to the centre moves to (x + tan(x_degrees) y', y') with
    y' = y + tan(y_degrees) x. Interpolation is bilinear; pixels outside of the image are black.
    """
    height, width = image.shape[:2]
    y, x = np.meshgrid(_centred(height), _centred(width), indexing="ij")
    # The point that moves to (x, y), by undoing the last shear first.
    source_x = x - math.tan(math.radians(x_degrees)) * y
    source_y = y - math.tan(math.radians(y_degrees)) * source_x
    # grid_sample counts from -1 to 1 between the borders of the image.
    grid = np.stack((source_x * (2 / width), source_y * (2 / height)), axis=-1)
    channels = torch.from_numpy(image.transpose(2, 0, 1).astype(np.float64))
    sheared = F.grid_sample(channels[None], torch.from_numpy(grid)[None], align_corners=False)
    return to_uint8(sheared[0].numpy()).transpose(1, 2, 0)


def _centred(size: int) -> NDArray[np.float64]:
    """Return the coordinates of ``size`` pixels relative to their centre."""
    return np.arange(size, dtype=np.float64) - (size - 1) / 2


def jigsaw_sources(
    rows: int, columns: int, max_steps: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return the index of the cell that moves to each position, shape (rows, columns).

    Each position gets a random number of steps, 0 to ``max_steps``. In each of ``max_steps``
    rounds, each position chooses a random neighbour (up, down, left or right); if both have steps
    left, they swap their cells and both lose a step.
    """
    sources = np.arange(rows * columns).reshape(rows, columns)
    steps_left = generator.integers(0, max_steps, (rows, columns), endpoint=True)
    directions = generator.integers(0, 4, (max_steps, rows, columns))
    for round_, row, column in np.ndindex(max_steps, rows, columns):
        down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[directions[round_, row, column]]
        position, neighbour = (row, column), (row + down, column + right)
        exists = 0 <= neighbour[0] < rows and 0 <= neighbour[1] < columns
        if exists and steps_left[position] > 0 and steps_left[neighbour] > 0:
            sources[position], sources[neighbour] = sources[neighbour], sources[position]
            steps_left[position] -= 1
            steps_left[neighbour] -= 1
    return sources


def rearrange(image: Image, sources: NDArray[np.int64]) -> Image:
    """Move the cells of an image to new positions.

    Args:
        image: If its size is no multiple of the number of cells, it is padded with black on both
            sides, and the result is cropped.
        sources: Index of the cell that moves to each position, shape (rows, columns).
    """
    height, width, channels = image.shape
    rows, columns = sources.shape
    # Rounded up.
    cell_height, cell_width = -(-height // rows), -(-width // columns)
    top, left = (cell_height * rows - height) // 2, (cell_width * columns - width) // 2
    padded = np.zeros((cell_height * rows, cell_width * columns, channels), np.uint8)
    inner = (slice(top, top + height), slice(left, left + width))
    padded[inner] = image
    # Shape (rows, columns, cell_height, cell_width, channels).
    cells = padded.reshape(rows, cell_height, columns, cell_width, channels).swapaxes(1, 2)
    moved = cells.reshape(-1, cell_height, cell_width, channels)[sources]
    return moved.swapaxes(1, 2).reshape(padded.shape)[inner]


def shift_hue_and_saturation(image: Image, hue: float, saturation: float) -> Image:
    """Add ``hue`` and ``saturation`` to an RGB image in HSV space; grey pixels have hue 0.

    Args:
        image: Shape (H, W, 3).
        hue: Degrees to add.
        saturation: Number to add on the scale 0..255; the sum is clipped to it.
    """
    red, green, blue = (image[..., c].astype(np.float32) for c in range(3))
    value = np.maximum(np.maximum(red, green), blue)
    chroma = value - np.minimum(np.minimum(red, green), blue)
    divisor = np.maximum(chroma, 1)  # 1 for grey
    # The hue in sixths of the circle: red is at 0, green at 2 and blue at 4.
    sixths = np.where(
        value == red,
        (green - blue) / divisor,
        np.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    new_saturation = np.clip(255 * chroma / np.maximum(value, 1) + np.float32(saturation), 0, 255)
    new_chroma = value * new_saturation / 255
    # A channel falls from its maximum to its minimum at a distance of one to two sixths in hue.
    distance = np.stack([_hue_distance(sixths + np.float32(hue / 60), c) for c in (0, 2, 4)], -1)
    return to_uint8(value[..., None] - new_chroma[..., None] * np.clip(distance - 1, 0, 1))


def _hue_distance(sixths: NDArray[np.float32], peak: int) -> NDArray[np.float32]:
    """Return the distance of a hue from ``peak`` on a circle of length 6."""
    return np.abs((sixths - np.float32(peak) + 3) % 6 - 3)


@cache
def disc_kernel(radius: int, sigma: float) -> torch.Tensor:
    """Return a disc smoothed by a Gaussian, summing to 1, shape (S, S) with S odd.

    Args:
        radius: Radius of the disc, all points with x^2 + y^2 <= radius^2.
        sigma: Standard deviation of the Gaussian, truncated at one pixel (above radius 8 at two).
    """
    reach = 1 if radius <= 8 else 2
    offsets = torch.arange(-radius, radius + 1)
    disc = (offsets.square()[:, None] + offsets.square() <= radius**2).double()
    taps = torch.exp(-torch.arange(-reach, reach + 1).double().square() / (2 * sigma**2))
    # Products of tiny taps are denormal in float32, which makes a convolution ten times as slow.
    taps[taps < 1e-12] = 0
    # This padding enlarges the disc by ``reach`` on each side.
    smoothed = F.conv2d(disc[None, None], torch.outer(taps, taps)[None, None], padding=2 * reach)
    return (smoothed / smoothed.sum())[0, 0]


def convolve(image: Image, kernel: torch.Tensor) -> Image:
    """Convolve each channel with a symmetric kernel, with reflection padding.

    Args:
        image: The image to convolve.
        kernel: Shape (S, S) with S odd.
    """
    margin = len(kernel) // 2
    padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    channels = torch.from_numpy(padded.transpose(2, 0, 1).astype(np.float32))
    blurred = F.conv2d(channels[:, None], kernel.float()[None, None])
    return to_uint8(blurred[:, 0].numpy()).transpose(1, 2, 0)
