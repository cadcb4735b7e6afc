"""Hold the samples of a training, on the device if they fit, and gather batches of them."""

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
    """Images from which batches are drawn, resident on the device if they fit.

    On a CPU nothing is copied: batches are gathered from the array, which may be memory-mapped and
    is then shared by all processes. On a GPU the array is uploaded, once for all its views, if the
    processes on it together take at most half of its free memory for that; else each batch is
    gathered into page-locked memory and sent.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        super().__init__(images.pixels, device)
        self._offsets = images.offsets
        self._heights, self._widths = images.heights, images.widths
        self._channels = images.channels
        self._frame = _frame(images)
        if self._frame is not None:
            self._rows = torch.from_numpy(self._offsets // int(np.prod(self._frame)))

    def __len__(self) -> int:
        return len(self._offsets)

    def batch(self, rows: np.ndarray) -> PixelBatch:
        """Return the images of some rows of the view, int64 (B,), on the device."""
        if self._frame is not None:
            pixels, size = self._samples.tensor, int(np.prod(self._frame))
            frames = pixels[: len(pixels) // size * size].view(-1, *self._frame)
            return PixelBatch(gather(frames, self._rows[torch.from_numpy(rows)], self.device))
        heights, widths = self._heights[rows], self._widths[rows]
        sizes = torch.from_numpy(np.stack([heights, widths], axis=1))
        if self._samples.tensor.device.type == "cpu":
            batch = self._copy_each(rows, heights, widths)
            return PixelBatch(batch.to(self.device, non_blocking=True), sizes)
        return PixelBatch(self._gather_pixels(rows, heights, widths), sizes)

    def _copy_each(self, rows: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> Tensor:
        """Copy images of different sizes into one array, repeating their edge pixels."""
        shape = (len(rows), int(heights.max()), int(widths.max()), self._channels)
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        out, flat = batch.numpy(), self._samples.tensor.numpy()
        for frame, row, height, width in zip(out, rows, heights, widths, strict=True):
            start = self._offsets[row]
            image = flat[start : start + height * width * self._channels]
            frame[:height, :width] = image.reshape(height, width, self._channels)
            frame[:height, width:] = frame[:height, width - 1 : width]
            frame[height:] = frame[height - 1 : height]
        return batch

    def _gather_pixels(self, rows: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> Tensor:
        """Do the same on a device that holds all pixels, by one gather."""
        pixels = self._samples.tensor.view(-1, self._channels)
        table = np.stack([self._offsets[rows] // self._channels, heights, widths])
        start, height, width = torch.from_numpy(table).to(self.device, non_blocking=True)
        y = torch.arange(int(heights.max()), device=self.device)
        x = torch.arange(int(widths.max()), device=self.device)
        y_in = torch.minimum(y[None], height[:, None] - 1)
        x_in = torch.minimum(x[None], width[:, None] - 1)
        index = start[:, None, None] + y_in[:, :, None] * width[:, None, None] + x_in[:, None, :]
        return pixels[index]


class TensorStore(_Store):
    """Samples that are no images, from which batches are drawn; resident if they fit.

    As with :class:`PixelStore`, nothing is copied on a CPU, and a GPU
    holds the whole array where that has room.
    """

    def __init__(self, tensors: Tensors, device: torch.device) -> None:
        super().__init__(tensors.values, device)
        self._dtype = tensors.input_shape.dtype
        self._rows = torch.from_numpy(tensors.rows)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: np.ndarray) -> Tensor:
        """Return the samples of some rows, int64 (B,), on the device: float32 or integers."""
        batch = gather(self._samples.tensor, self._rows[torch.from_numpy(rows)], self.device)
        return batch.to(self._dtype)


def gather(samples: Tensor, index: Tensor, device: torch.device) -> Tensor:
    """Return the rows of an index (B,) on the device; ``samples`` are there or on the CPU."""
    if samples.device.type != "cpu":
        return samples[index.to(device, non_blocking=True)]
    if device.type == "cpu":
        return torch.index_select(samples, 0, index)
    shape, pinned = (len(index), *samples.shape[1:]), device.type == "cuda"
    out = torch.empty(shape, dtype=samples.dtype, pin_memory=pinned)
    return torch.index_select(samples, 0, index, out=out).to(device, non_blocking=True)


def _frame(images: Images) -> tuple[int, int, int] | None:
    """Return the shape of all images if it is one and all offsets are multiples of its size."""
    if images.shape is None or (images.offsets % int(np.prod(images.shape))).any():
        return None
    return images.shape
