"""Stores of samples, on the device if they fit, from which batches are gathered."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reality_check.data.images import Images, PixelBatch
from reality_check.data.residency import device_array
from reality_check.data.tensors import Tensors


class _Store:
    """An array on the device if it fits, else in memory."""

    def __init__(self, array: np.ndarray, device: torch.device) -> None:
        self.device = device
        self._samples = device_array(array, device)

    @property
    def resident(self) -> bool:
        """Whether the samples are on the device."""
        return self._samples.tensor.device.type == self.device.type


class PixelStore(_Store):
    """Images, on the device if they fit, from which batches are gathered.

    On a CPU nothing is copied: batches are gathered from the array, which may be memory-mapped and
    is then shared by all processes. To a GPU the array is uploaded, once for all its views, if the
    copies of all processes together take at most half of the GPU's free memory; else each batch is
    gathered into page-locked memory and sent.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        super().__init__(images.pixels, device)
        self._offsets = images.offsets
        self._heights, self._widths = images.heights, images.widths
        self._channels = images.channels
        self._frame = _common_frame(images)
        if self._frame is not None:  # the array is a sequence of frames, and each image is one
            self._frame_numbers = torch.from_numpy(self._offsets // int(np.prod(self._frame)))

    def __len__(self) -> int:
        return len(self._offsets)

    def batch(self, rows: np.ndarray) -> PixelBatch:
        """Return the images at the indices ``rows``, int64 (B,), on the device."""
        if self._frame is not None:
            pixels, size = self._samples.tensor, int(np.prod(self._frame))
            # Any incomplete frame at the end is cut off.
            frames = pixels[: len(pixels) // size * size].view(-1, *self._frame)
            numbers = self._frame_numbers[torch.from_numpy(rows)]
            return PixelBatch(gather(frames, numbers, self.device))
        sizes = np.stack([self._heights[rows], self._widths[rows]], axis=1)
        batch = self._copy_each(rows, sizes)
        return PixelBatch(batch.to(self.device, non_blocking=True), torch.from_numpy(sizes))

    def _copy_each(self, rows: np.ndarray, sizes: np.ndarray) -> Tensor:
        """Copy images of different sizes into one array, repeating their edge pixels."""
        pixels = self._samples.tensor
        pinned = not self.resident and self.device.type == "cuda"  # page-locked for the upload
        shape = (len(rows), *sizes.max(axis=0).tolist(), self._channels)
        batch = torch.empty(shape, dtype=torch.uint8, device=pixels.device, pin_memory=pinned)
        starts = self._offsets[rows].tolist()
        for frame, start, (height, width) in zip(batch, starts, sizes.tolist(), strict=True):
            image = pixels[start : start + height * width * self._channels]
            frame[:height, :width] = image.view(height, width, self._channels)
            frame[:height, width:] = frame[:height, width - 1 : width]
            frame[height:] = frame[height - 1 : height]
        return batch


class TensorStore(_Store):
    """Tensors, on the device if they fit, from which batches are gathered.

    They are stored in the same way as the images of :class:`PixelStore`.
    """

    def __init__(self, tensors: Tensors, device: torch.device) -> None:
        super().__init__(tensors.values, device)
        self._dtype = tensors.input_shape.dtype
        self._rows = torch.from_numpy(tensors.rows)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: np.ndarray) -> Tensor:
        """Return the samples at the indices ``rows``, int64 (B,): float32 or integers."""
        batch = gather(self._samples.tensor, self._rows[torch.from_numpy(rows)], self.device)
        return batch.to(self._dtype)


def gather(samples: Tensor, index: Tensor, device: torch.device) -> Tensor:
    """Return ``samples[index]`` on the device, for samples on that device or on the CPU."""
    if samples.device.type != "cpu":
        return samples[index.to(device, non_blocking=True)]
    if device.type == "cpu":
        return torch.index_select(samples, 0, index)
    shape = (len(index), *samples.shape[1:])
    # From page-locked memory, the copy to a GPU does not hold up the host.
    out = torch.empty(shape, dtype=samples.dtype, pin_memory=device.type == "cuda")
    return torch.index_select(samples, 0, index, out=out).to(device, non_blocking=True)


def _common_frame(images: Images) -> tuple[int, int, int] | None:
    """Return the shape (H, W, C) that all images have.

    Returns:
        The shape; None if the shapes differ, or an image starts at no multiple of the shape's size.
    """
    if images.shape is None or (images.offsets % int(np.prod(images.shape))).any():
        return None
    return images.shape
