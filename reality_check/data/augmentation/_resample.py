"""Resample a batch of images: by a plain cut, two matrix products or a sampling grid.

The input is uint8, shape (B, H, W, C); the output is float32, shape (B, C, *output), values 0..255.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pml_extensions.functional import without_autocast, without_tf32
from reality_check.data.augmentation._windows import Windows

Interpolation = Literal["bilinear", "bicubic"]


def to_float(pixels: Tensor) -> Tensor:
    """Convert uint8 (B, H, W, C) to contiguous float32 (B, C, H, W), values 0..255."""
    images = pixels.permute(0, 3, 1, 2)
    return images.to(torch.float32, memory_format=torch.contiguous_format)


def cut(pixels: Tensor, start: np.ndarray, output: tuple[int, int]) -> Tensor:
    """Cut a window of ``output`` size out of each image, at whole pixels ``start`` (B or 1, 2)."""
    corner = start.astype(np.int64)
    height, width = output
    if (corner == corner[0]).all():
        top, left = corner[0]
        return to_float(pixels[:, top : top + height, left : left + width])
    # All possible windows, as a view; indexing copies whole windows, far faster than pixels.
    windows = pixels.unfold(1, height, 1).unfold(2, width, 1)
    # For each window the index of its image, its top and its left.
    index = torch.from_numpy(np.insert(corner.T, 0, np.arange(len(pixels)), axis=0))
    image, top, left = index.to(pixels.device, non_blocking=True)
    return windows[image, top, left].to(torch.float32).contiguous()


def interpolate(pixels: Tensor, windows: Windows, output: tuple[int, int]) -> Tensor:
    """Resize bilinearly with ``torch.nn.functional.interpolate``, one image after the other.

    Bounded windows are cut out and resized. Windows that are not bounded are cut out of the resized
    images; they must have the size of the output.
    """
    count = len(pixels)
    parts = (windows.sizes, windows.scaled, windows.start, windows.extent)
    integers = np.stack([np.broadcast_to(part, (count, 2)) for part in parts], axis=1).astype(int)
    images = torch.empty((count, pixels.shape[3], *output), device=pixels.device)
    # Each source is a batch of one image.
    for image, source, window in zip(images, pixels[:, None], integers.tolist(), strict=True):
        (height, width), scaled, (top, left), (tall, wide) = window
        if windows.bounded:
            region, scaled = source[:, top : top + tall, left : left + wide], output
            top = left = 0
        else:
            region = source[:, :height, :width]
        resized = functional.interpolate(to_float(region), scaled, mode="bilinear", antialias=True)
        image.copy_(resized[0, :, top : top + output[0], left : left + output[1]])
    return images


def resample(
    pixels: Tensor, axes: np.ndarray, output: tuple[int, int], interpolation: Interpolation
) -> Tensor:
    """Resample each axis independently, by a product with a matrix of filter weights.

    If an axis shrinks, its filter is widened, as in Pillow and in torchvision with
    ``antialias=True``. The bicubic filter has a = -0.5.

    Args:
        axes: (B, 4, 2) or (1, 4, 2): offset, step, low and high of each axis. Output position t
            (0.5 for the first pixel) is at input position ``offset + step * t``; the filter sees
            the input from ``low`` to ``high``.
    """
    count, height, width, channels = pixels.shape
    rows = _weights(axes[:, :, 0], output[0], height, interpolation, pixels.device)
    columns = _weights(axes[:, :, 1], output[1], width, interpolation, pixels.device)
    # First the width is resampled, then the height. With the channels between these axes, both
    # products are plain products of matrix batches.
    lines = pixels.permute(0, 1, 3, 2).to(torch.float32, memory_format=torch.contiguous_format)
    with without_autocast(pixels), without_tf32(pixels.device):
        lines = lines.view(count, height * channels, width)
        lines = torch.bmm(lines, columns.expand(count, -1, -1).transpose(1, 2))
        if interpolation == "bicubic":  # it overshoots; Pillow clamps after each axis too
            lines.clamp_(0, 255)
        lines = lines.view(count, height, channels * output[1])
        images = torch.bmm(rows.expand(count, -1, -1), lines)
    if interpolation == "bicubic":
        images.clamp_(0, 255)
    return images.view(count, output[0], channels, output[1]).permute(0, 2, 1, 3).contiguous()


def _weights(
    axis: np.ndarray, output: int, size: int, interpolation: Interpolation, device: torch.device
) -> Tensor:
    """Return filter weights (B, output, size) on the device, each row of sum 1.

    Args:
        axis: (B, 4): offset, step, low and high of one axis, see :func:`resample`.
        output: number of pixels of the output along the axis.
        size: number of pixels of the input.
    """
    offset, step, low, high = axis.T[:, :, None]
    tap = np.arange(size) + 0.5  # the positions of the input's pixels
    width = np.maximum(np.abs(step), 1)  # of the filter, which is wider if the axis shrinks
    centre = (offset + step * (np.arange(output) + 0.5)).clip(low, high) / width
    visible = (tap > low) & (tap < high)
    # Until here, the arrays are small, so float64 costs little; they are uploaded as one array.
    # The bilinear weight is `bound - distance`, or 0 if that is negative, so a bound of -inf hides
    # a tap.
    parts = (centre, tap / width, np.where(visible, 1.0, -np.inf))
    packed = np.concatenate(parts, axis=1, dtype=np.float32)
    on_device = torch.from_numpy(packed).to(device, non_blocking=True)
    centres, taps, bound = on_device.split([output, size, size], dim=1)
    distance = (taps[:, None, :] - centres[:, :, None]).abs_()
    if interpolation == "bicubic":
        weights = _cubic(distance) * (bound > 0)[:, None, :]
    else:
        weights = distance.neg_().add_(bound[:, None, :]).clamp_(min=0)
    return weights.mul_(weights.sum(dim=2, keepdim=True).reciprocal_())


def _cubic(x: Tensor) -> Tensor:
    """Return Keys' kernel with a = -0.5 at distances x >= 0."""
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def resample_grid(
    pixels: Tensor, maps: np.ndarray, sizes: np.ndarray, output: tuple[int, int]
) -> Tensor:
    """Resample by any affine map, bilinearly and without a low-pass filter.

    Args:
        maps: (B, 2, 3), y before x: from output positions (y, x, 1) to input positions, in pixels.
        sizes: (B, 2) or (1, 2): heights and widths of the images in their frames. Beyond them the
            edge pixels are repeated.
    """
    count, device = len(pixels), pixels.device
    frame = np.asarray(pixels.shape[1:3], dtype=np.float64)
    # x before y, as grid_sample has them; for each image its map and its largest position.
    packed = np.empty((2, count, 4), dtype=np.float32)
    to_frame = maps * (2 / frame)[:, None]  # positions are -1..1 over the frame
    to_frame[:, :, 2] -= 1
    packed[:, :, :3] = to_frame.transpose(1, 0, 2)[::-1]
    packed[:, :, 3] = ((2 * sizes - 1) / frame - 1).T[::-1]  # the centre of the last pixel
    planes = torch.from_numpy(packed).to(device, non_blocking=True).view(2 * count, 4)
    with without_autocast(pixels), without_tf32(device):
        grid = planes[:, :3] @ _centres(output, device)
    if (sizes != frame).any():
        grid = torch.minimum(grid, planes[:, 3:])
    return functional.grid_sample(
        to_float(pixels),
        grid.view(2, count, *output).permute(1, 2, 3, 0),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )


@lru_cache(maxsize=8)
def _centres(output: tuple[int, int], device: torch.device) -> Tensor:
    """Return the positions (y, x, 1) of all pixels, shape (3, height x width)."""
    y, x = (torch.arange(side, device=device) + 0.5 for side in output)
    both = torch.stack(torch.meshgrid(y, x, indexing="ij")).view(2, -1)
    return torch.cat([both, torch.ones_like(both[:1])])
