"""Augmentation of batches on the training device: drawn per image, resampled once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reality_check.config.messages import validate
from reality_check.config.training import Augment
from reality_check.data.augmentation import _color
from reality_check.data.augmentation._maps import axes_of, compose, inverse_maps
from reality_check.data.augmentation._resample import resample, resample_grid
from reality_check.data.augmentation._windows import (
    CROP_NUMBERS,
    Windows,
    random_crops,
    resized_crops,
    scaled_sizes,
)
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import PixelBatch

# Columns of an image's random numbers. All are drawn if any option is on, so that turning one on
# does not change the numbers of the others.
_ANGLE, _ENLARGEMENT, _FLIP, _GREY = 0, 1, 2, 3
_SHEAR, _SHIFT, _COLOR_FACTORS, _COLOR_KEYS = slice(4, 6), slice(6, 8), slice(8, 12), slice(12, 16)
_CROP = slice(16, 16 + CROP_NUMBERS)
_NUMBERS_PER_IMAGE = 16 + CROP_NUMBERS
#: A share is not negative, and half a circle is the largest turn of the hue.
_LEAST_FACTORS = np.asarray([0.0, 0.0, 0.0, -0.5])


class Augmentation:
    """Change each image of a batch at random, then normalise it as :class:`Normalize` does.

    The order is: resize, motion about the centre (shear, rotation, scale, translation), crop,
    horizontal flip, colour jitter, conversion to grey, preprocessing. Resize, motion, crop and flip
    are composed into one map per image, so that each image is resampled once. Without rotation and
    shear, resampling is separable and filtered as in Pillow and torchvision (``antialias=True``),
    or a plain cut if no pixel moves; with them, it is bilinear without a low-pass filter. Edge
    pixels are repeated beyond the border, which keeps paper white. The random numbers are drawn on
    the CPU, so that they are the same for all devices. All options are off by default; then nothing
    is drawn, and the result equals that of :class:`Normalize`.

    Args:
        rotation: largest angle in degrees, drawn from [-rotation, rotation].
        scale: (low, high) bounds of the content's enlargement, positive; drawn log-uniformly.
        shear: largest shear angle in degrees along x and along y, each from [-shear, shear].
        translation: largest shift along each axis as a fraction of the image's side.
        horizontal_flip: probability of mirroring left and right.
        resized_crop_scale: (low, high) bounds of the fraction of the image's area that a random
            crop keeps, within (0, 1]; None for no such crop. Windows are drawn in whole pixels with
            the rule of torchvision's RandomResizedCrop.
        resized_crop_ratio: (low, high) bounds of that crop's width / height, drawn log-uniformly.
        random_crop: whether the crop of ``crop_size`` is at a random position instead of in the
            centre.
        brightness: b, where the factor is drawn from [max(0, 1 - b), 1 + b], as in torchvision's
            ColorJitter; the order of the four jitters is drawn for each image.
        contrast: the same for the blend with the mean grey.
        saturation: the same for the blend with the grey image.
        hue: h, where the turn of the hue is drawn from [-h, h] full circles; at most 0.5.
        grayscale: probability of turning a colour image grey.
        crop_size: side of the result in pixels; None keeps the image's size.
        resize: see :class:`Normalize`.
        interpolation: see :class:`Normalize`; rotation and shear need ``"bilinear"``.
        preprocessing: see :class:`Normalize`.

    Raises:
        UsageError: if an option is out of its range, or contradicts another.
    """

    def __init__(self, *, preprocessing: Preprocessing | None = None, **options: Any) -> None:
        self._options: Augment = validate(Augment, options, "augmentation")
        jitter = ("brightness", "contrast", "saturation", "hue")
        self._jitter = np.asarray([getattr(self._options, name) for name in jitter])
        self._normalize = Normalize(
            preprocessing,
            crop_size=self._options.crop_size,
            resize=self._options.resize,
            interpolation=self._options.interpolation,
        )

    @property
    def is_off(self) -> bool:
        """Whether no option is on, so that nothing is random."""
        crops = self._options.random_crop or self._options.resized_crop_scale is not None
        others = (self._options.horizontal_flip, self._options.grayscale, *self._jitter)
        return not (self._moves or crops or any(others))

    @property
    def _turns(self) -> bool:
        """Whether the motion includes rotation or shear."""
        return bool(self._options.rotation or self._options.shear)

    @property
    def _moves(self) -> bool:
        """Whether there is a motion."""
        return bool(self._turns or self._options.translation or self._options.scale != (1.0, 1.0))

    def evaluation_transform(self) -> Normalize:
        """Return the transform of evaluation, which is not random."""
        return self._normalize

    def draw(self, count: int, generator: torch.Generator) -> np.ndarray:
        """Draw the random numbers of ``count`` images.

        Args:
            generator: a CPU generator; untouched if all options are off.

        Returns:
            float64, shape (count, K), within [0, 1), one row per image. K depends only on whether
            any option is on, so that later draws do not depend on which ones are.
        """
        if self.is_off:
            return np.empty((count, 0))
        return torch.rand(
            (count, _NUMBERS_PER_IMAGE), generator=generator, dtype=torch.float64
        ).numpy()

    def __call__(self, batch: Tensor | PixelBatch, generator: torch.Generator) -> Tensor:
        """Draw random numbers for a batch and augment it, see :meth:`draw` and :meth:`apply`."""
        pixels = batch if isinstance(batch, Tensor) else batch.pixels
        return self.apply(batch, self.draw(len(pixels), generator))

    def apply(self, batch: Tensor | PixelBatch, numbers: np.ndarray) -> Tensor:
        """Augment and normalise a batch with given random numbers.

        Args:
            batch: uint8, shape (B, H, W, C), on any device, alone or with the images' sizes.
            numbers: B rows of :meth:`draw`.

        Returns:
            float32, shape (B, C, H, W) or (B, C, crop_size, crop_size), on the batch's device.

        Raises:
            UsageError: if the batch has another type, or if its images have different sizes and
                ``crop_size`` is None.
        """
        if self.is_off:
            return self._normalize(batch)
        images = self._geometry(batch, numbers)
        if self._jitter.any():
            images = _color.jitter(images, self._factors(numbers), numbers[:, _COLOR_KEYS])
        if self._options.grayscale:
            images = _color.to_grey(
                images, np.flatnonzero(numbers[:, _GREY] < self._options.grayscale)
            )
        return self._normalize.preprocessing.normalize(images)

    def _geometry(self, batch: Tensor | PixelBatch, numbers: np.ndarray) -> Tensor:
        """Return the images after resize, motion, crop and flip: float32 (B, C, h, w), 0..255."""
        pixels, windows, output = self._normalize.centre(batch)
        windows = self._windows(windows, numbers)
        flip = (
            numbers[:, _FLIP] < self._options.horizontal_flip
            if self._options.horizontal_flip
            else None
        )
        if not self._moves:
            return self._normalize.render(pixels, windows, output, flip)
        windows = replace(windows, bounded=False)  # the motion moves pixels across borders
        maps = compose(windows, output, *self._motion(numbers), flip)
        if self._turns:
            return resample_grid(pixels, maps, windows.sizes, output)
        return resample(pixels, axes_of(maps, windows), output, self._normalize.interpolation)

    def _windows(self, centre: Windows, numbers: np.ndarray) -> Windows:
        """Return each image's window: a random one if a crop is on, else the one in the centre."""
        drawn = numbers[:, _CROP]
        if self._options.resized_crop_scale is not None:
            bounds = self._options.resized_crop_scale, self._options.resized_crop_ratio
            # Images smaller than crop_size are not enlarged (None), because windows are resized.
            scaled = scaled_sizes(centre.sizes, self._normalize.resize, None)
            return resized_crops(centre.sizes, scaled, *bounds, drawn)
        return random_crops(centre, drawn[:, :2]) if self._options.random_crop else centre

    def _motion(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the inverse of each image's linear map, and its shift in units of the sides."""
        signed = 2 * numbers - 1  # within [-1, 1)
        low, high = np.log(self._options.scale)
        factor = np.exp(low + (high - low) * numbers[:, _ENLARGEMENT])
        angle = self._options.rotation * signed[:, _ANGLE]
        shear = self._options.shear * signed[:, _SHEAR]
        return inverse_maps(angle, shear, factor), self._options.translation * signed[:, _SHIFT]

    def _factors(self, numbers: np.ndarray) -> np.ndarray:
        """Return each image's ``factors`` of :func:`_color.jitter`."""
        low = np.maximum(_color.NEUTRAL - self._jitter, _LEAST_FACTORS)
        high = _color.NEUTRAL + self._jitter
        return low + (high - low) * numbers[:, _COLOR_FACTORS]
