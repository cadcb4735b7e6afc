"""Choose the window of each image that becomes the output, in pixels, y before x."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

_TRIES = 10
#: How many random numbers :func:`resized_crops` needs per image: position, areas, ratios.
CROP_NUMBERS = 2 + 2 * _TRIES


@dataclass(frozen=True)
class Windows:
    """One window in each image of a batch; all arrays are (B, 2) or (1, 2), height before width.

    Args:
        sizes: sizes of the images as they are stored.
        scaled: sizes of the images after the resize; windows are positioned in the resized images.
        start: top left corners of the windows.
        extent: heights and widths of the windows.
        bounded: whether a filter uses pixels of the window only, as if it had been cut out first.
    """

    sizes: np.ndarray
    scaled: np.ndarray
    start: np.ndarray
    extent: np.ndarray
    bounded: bool = False

    def need_resampling(self, output: tuple[int, int]) -> bool:
        """Return whether any window is more than a plain cut of ``output`` pixels."""
        return bool((self.scaled != self.sizes).any() or (self.extent != output).any())

    def can_be_resized(self, output: tuple[int, int]) -> bool:
        """Return whether ``_resample.interpolate`` can make the outputs.

        It can if they are resized windows, or plain cuts of resized images.
        """
        cuts = bool((self.extent == output).all())
        return self.need_resampling(output) and (cuts or self.bounded)


def scaled_sizes(
    sizes: np.ndarray, resize: int | tuple[int, int] | None, crop_size: int | None
) -> np.ndarray:
    """Return the sizes after the resize, which enlarges images that are smaller than the crop.

    Args:
        sizes: (B, 2) heights and widths.
        resize: new short side (the long one is rounded down, as in torchvision), or new height and
            width, or None to keep the sizes.
        crop_size: the smallest allowed short side, or None.
    """
    if isinstance(resize, tuple):
        return np.broadcast_to(np.asarray(resize, dtype=np.float64), sizes.shape)
    short = sizes.min(axis=1, keepdims=True)
    if resize is None and (crop_size is None or short.min() >= crop_size):
        return sizes
    new_short = short if resize is None else np.full_like(short, resize)
    if crop_size is not None:
        new_short = np.maximum(new_short, crop_size)
    return np.where(sizes == short, new_short, np.floor(new_short * sizes / short))


def centre_crops(sizes: np.ndarray, scaled: np.ndarray, output: tuple[int, int]) -> Windows:
    """Return windows of ``output`` size in the centre, rounded as torchvision's CenterCrop does."""
    extent = np.asarray([output], dtype=np.float64)
    return Windows(sizes, scaled, np.rint((scaled - extent) / 2), extent)


def random_crops(centre: Windows, numbers: np.ndarray) -> Windows:
    """Move windows to random positions, in whole pixels, by ``numbers`` (B, 2) in [0, 1)."""
    return replace(centre, start=np.floor(numbers * (centre.scaled - centre.extent + 1)))


def resized_crops(
    sizes: np.ndarray,
    scaled: np.ndarray,
    area: tuple[float, float],
    ratio: tuple[float, float],
    numbers: np.ndarray,
) -> Windows:
    """Draw windows with the rule of torchvision's RandomResizedCrop, in whole pixels.

    Args:
        sizes: (B, 2) or (1, 2), heights and widths of the stored images.
        scaled: heights and widths after the resize.
        area: bounds of the fraction of the image's area.
        ratio: bounds of width / height, which is drawn log-uniformly.
        numbers: (B, CROP_NUMBERS), random numbers in [0, 1).
    """
    height, width = scaled[:, :1], scaled[:, 1:]
    # Each column is a try; all are computed, and the first that fits is taken.
    position, areas, ratios = np.split(numbers, [2, 2 + _TRIES], axis=1)
    target = height * width * (area[0] + (area[1] - area[0]) * areas)
    low, high = np.log(ratio)
    aspects = np.exp(low + (high - low) * ratios)
    tall, wide = np.rint(np.sqrt(target / aspects)), np.rint(np.sqrt(target * aspects))
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    row, first = np.arange(len(numbers)), fits.argmax(axis=1)  # the first try that fits
    extent = np.stack([tall[row, first], wide[row, first]], axis=1)
    start = np.floor(position * (scaled - extent + 1))
    any_fits = fits[row, first][:, None]
    if not any_fits.all():
        largest = _largest_window(height, width, ratio)
        extent = np.where(any_fits, extent, largest)
        start = np.where(any_fits, start, (scaled - largest) // 2)
    return Windows(sizes, scaled, start, extent, bounded=np.array_equal(sizes, scaled))


def _largest_window(
    height: np.ndarray, width: np.ndarray, ratio: tuple[float, float]
) -> np.ndarray:
    """Return the largest window of the nearest ratio, as torchvision does if no try fits."""
    too_narrow, too_wide = width < ratio[0] * height, width > ratio[1] * height
    return np.concatenate(
        [
            np.where(too_narrow, np.rint(width / ratio[0]), height),
            np.where(too_wide, np.rint(height * ratio[1]), width),
        ],
        axis=1,
    )
