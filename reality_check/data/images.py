"""Decoded images of equal or different sizes, in one flat array that views and processes share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from reality_check.utils.errors import UsageError


class PixelBatch(NamedTuple):
    """A batch of images, the input of augmentation.

    Attributes:
        pixels: uint8, shape (B, H, W, C): B frames of the batch's largest height and width. An
            image is in the top left corner of its frame; its edge pixels are repeated beyond it.
        sizes: int64, shape (B, 2), on the CPU: height and width of each image. None if every image
            fills its frame.
    """

    pixels: Tensor
    sizes: Tensor | None = None


class Images:
    """N uint8 images. Indexing by rows gives a view: no pixel is copied.

    Args:
        pixels: uint8, shape (bytes,): all images, one after the other; may be memory-mapped.
        offsets: int64, shape (N,): index in ``pixels`` where each image begins.
        heights: int64, shape (N,): height of each image in pixels.
        widths: int64, shape (N,): width of each image in pixels.
        channels: 1 (grey) or 3 (RGB). An image with offset o, height h, width w and c channels is
            ``pixels[o : o + h * w * c].reshape(h, w, c)``.
    """

    def __init__(
        self,
        pixels: np.ndarray,
        offsets: np.ndarray,
        heights: np.ndarray,
        widths: np.ndarray,
        channels: int,
    ) -> None:
        self.pixels = pixels
        self.offsets = np.asarray(offsets, np.int64)
        self.heights = np.asarray(heights, np.int64)
        self.widths = np.asarray(widths, np.int64)
        self.channels = channels

    @classmethod
    def from_array(cls, array: np.ndarray) -> Images:
        """Create images of one size from an array.

        Args:
            array: uint8, shape (N, H, W, C); not copied if it is contiguous.

        Raises:
            UsageError: if the array has another type or shape, or is empty.
        """
        if array.dtype != np.uint8:
            raise UsageError(
                f"The images are {array.dtype}, but they must be uint8 (0..255); "
                "convert them with images.astype('uint8') after scaling to 0..255."
            )
        if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in array.shape:
            raise UsageError(
                f"The images have shape {array.shape}, but they must be (N, H, W, C) with at least "
                "one image and C = 1 (grey) or 3 (RGB)."
            )
        count, height, width, channels = array.shape
        return cls(
            np.ascontiguousarray(array).reshape(-1),
            np.arange(count, dtype=np.int64) * (height * width * channels),
            np.full(count, height),
            np.full(count, width),
            channels,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, rows: Any) -> Images:
        """Return a view of some images: a slice, an integer array or a bool mask."""
        return Images(
            self.pixels,
            np.atleast_1d(self.offsets[rows]),
            np.atleast_1d(self.heights[rows]),
            np.atleast_1d(self.widths[rows]),
            self.channels,
        )

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels if all images have one size, else None."""
        height, width = int(self.heights[0]), int(self.widths[0])
        if (self.heights == height).all() and (self.widths == width).all():
            return height, width, self.channels
        return None

    def image(self, index: int) -> np.ndarray:
        """Return an image: uint8, shape (H, W, C), not copied."""
        start = int(self.offsets[index])
        height, width = int(self.heights[index]), int(self.widths[index])
        flat = self.pixels[start : start + height * width * self.channels]
        return np.asarray(flat).reshape(height, width, self.channels)

    def array(self) -> np.ndarray:
        """Return all images as one uint8 array (N, H, W, C), a copy unless they are contiguous.

        Raises:
            UsageError: if the images have different sizes.
        """
        shape = self.shape
        if shape is None:
            raise UsageError(
                "The images have different sizes, so they do not fit into one array; read them "
                "with resize: square."
            )
        size = int(np.prod(shape))
        start = int(self.offsets[0])
        if (np.diff(self.offsets) == size).all():  # the images follow one another
            flat = self.pixels[start : start + size * len(self)]
            return np.asarray(flat).reshape(len(self), *shape)
        return np.stack([self.image(index) for index in range(len(self))])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.array()
        return array.astype(dtype) if dtype is not None else array
