"""Where the pixels of a training live, and how batches are taken from them."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from reality_check.data.images import Images, PixelBatch

#: Share of the free memory of a GPU that the images of one set may take.
_SHARE = 0.4
_UPLOAD_BYTES = 1 << 28


class PixelStore:
    """Images from which batches are drawn, resident on the device where they fit.

    On a CPU nothing is copied: batches are gathered from the array, which may be memory-mapped and
    is then shared by all processes. On a GPU the images are uploaded once if they take at most
    40 % of its free memory; else each batch is gathered into page-locked memory and sent.

    Args:
        images: a view; only its own images are uploaded.
        device: where batches are wanted.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device = device
        self.resident = device.type == "cpu" or fits(images.nbytes, device)
        if self.resident and device.type != "cpu":
            self._pixels, self._offsets = _upload(images, device)
        else:
            self._pixels, self._offsets = as_tensor(images.pixels), images.offsets
        self._heights, self._widths = images.heights, images.widths
        self._channels = images.channels
        self._frames = _frames(self._pixels, self._offsets, images.shape)
        if self._frames is not None:
            size = self._frames[0].numel()
            self._rows = torch.from_numpy(self._offsets // size)

    def __len__(self) -> int:
        return len(self._offsets)

    def batch(self, rows: np.ndarray) -> PixelBatch:
        """Gather images.

        Args:
            rows: int64, shape (B,), of the view that the store was made of.

        Returns:
            The images on the device, see :class:`PixelBatch`.
        """
        if self._frames is not None:
            return PixelBatch(gather(self._frames, self._rows[torch.from_numpy(rows)], self.device))
        heights, widths = self._heights[rows], self._widths[rows]
        sizes = torch.from_numpy(np.stack([heights, widths], axis=1))
        if self._pixels.device.type == "cpu":
            batch = self._copy_each(rows, heights, widths)
            return PixelBatch(batch.to(self.device, non_blocking=True), sizes)
        return PixelBatch(self._gather_pixels(rows, heights, widths), sizes)

    def _copy_each(self, rows: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> Tensor:
        """Copy images of different sizes into one array, repeating their edge pixels."""
        shape = (len(rows), int(heights.max()), int(widths.max()), self._channels)
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        out, flat = batch.numpy(), self._pixels.numpy()
        for slot, row, height, width in zip(out, rows, heights, widths, strict=True):
            start = self._offsets[row]
            image = flat[start : start + height * width * self._channels]
            slot[:height, :width] = image.reshape(height, width, self._channels)
            slot[:height, width:] = slot[:height, width - 1 : width]
            slot[height:] = slot[height - 1 : height]
        return batch

    def _gather_pixels(self, rows: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> Tensor:
        """The same on a device that holds all pixels, as one gather."""
        pixels = self._pixels.view(-1, self._channels)
        table = np.stack([self._offsets[rows] // self._channels, heights, widths])
        start, height, width = torch.from_numpy(table).to(self.device, non_blocking=True)
        y = torch.arange(int(heights.max()), device=self.device)
        x = torch.arange(int(widths.max()), device=self.device)
        y_in = torch.minimum(y[None], height[:, None] - 1)
        x_in = torch.minimum(x[None], width[:, None] - 1)
        index = start[:, None, None] + y_in[:, :, None] * width[:, None, None] + x_in[:, None, :]
        return pixels[index]


def gather(samples: Tensor, index: Tensor, device: torch.device) -> Tensor:
    """Take samples of one shape to a device, which holds them all or gets these.

    Args:
        samples: shape (M, ...), on the device or on the CPU.
        index: int64, shape (B,), on the CPU.
        device: where they are wanted.
    """
    if samples.device.type != "cpu":
        return samples[index.to(device, non_blocking=True)]
    if device.type == "cpu":
        return torch.index_select(samples, 0, index)
    shape, pinned = (len(index), *samples.shape[1:]), device.type == "cuda"
    out = torch.empty(shape, dtype=samples.dtype, pin_memory=pinned)
    return torch.index_select(samples, 0, index, out=out).to(device, non_blocking=True)


def _frames(
    pixels: Tensor, offsets: np.ndarray, shape: tuple[int, int, int] | None
) -> Tensor | None:
    """The flat array as (M, H, W, C) where all images have one size and lie on its raster."""
    if shape is None:
        return None
    size = int(np.prod(shape))
    if (offsets % size).any():
        return None
    count = len(pixels) // size
    return pixels[: count * size].view(count, *shape)


def fits(nbytes: int, device: torch.device) -> bool:
    """Whether the samples of one set take no more of a device than they may."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return nbytes <= _SHARE * free


def _upload(images: Images, device: torch.device) -> tuple[Tensor, np.ndarray]:
    """Copy the images of a view, and no others, to the device: flat pixels and new offsets."""
    sizes = images.sizes
    ends = np.cumsum(sizes)
    offsets = ends - sizes
    flat = torch.empty(int(ends[-1]), dtype=torch.uint8, device=device)
    first = 0
    while first < len(images):
        limit = offsets[first] + _UPLOAD_BYTES
        last = max(first + 1, int(np.searchsorted(ends, limit, side="right")))
        part = np.concatenate([images.image(row).reshape(-1) for row in range(first, last)])
        flat[int(offsets[first]) : int(ends[last - 1])] = torch.from_numpy(part).to(device)
        first = last
    return flat, offsets


def as_tensor(pixels: np.ndarray) -> Tensor:
    """An array, which may be read-only, as a tensor of the same memory."""
    with warnings.catch_warnings():
        # A read-only array warns; nothing here writes to it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(pixels))
