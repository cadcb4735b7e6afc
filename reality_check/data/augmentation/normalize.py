"""The transform of evaluation, which is not random: resize, centre crop, preprocessing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pml_extensions.evaluation import corrupt
from reality_check.config.messages import validate
from reality_check.config.training import Augment
from reality_check.data.augmentation._batch_checks import check_batch, check_frame
from reality_check.data.augmentation._maps import axes_of, compose
from reality_check.data.augmentation._resample import Interpolation, cut, interpolate, resample
from reality_check.data.augmentation._windows import Windows, centre_crops, scaled_sizes
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import PixelBatch
from reality_check.utils.errors import UsageError

#: The seed of the random numbers that corrupt images.
SEED = 0
#: From this short side on, ``interpolate`` is faster than ``resample`` on a CPU: crops of 112
#: pixels out of 128 take 0.24 instead of 0.51 ms, of 224 out of 256 take 0.9 instead of 2.6 ms.
_MIN_INTERPOLATE_SIDE = 96


class Normalize:
    """Turn uint8 images into a trunk's input without randomness, as evaluation does.

    The image is resized if ``resize`` asks for another size, or if it is smaller than the crop
    (then its short side becomes ``crop_size``). Its centre is cropped and preprocessed.

    Args:
        preprocessing: mean, deviation, range and channel order of the trunk's input.
        crop_size: side of the square centre crop in pixels; None keeps the image's size.
        resize: new short side, or new (height, width), in pixels, not smaller than ``crop_size``,
            which must be given too; None keeps the image's size.
        interpolation: ``"bilinear"`` or ``"bicubic"``, both with the low-pass filter of Pillow and
            of torchvision's ``antialias=True``.

    Raises:
        UsageError: if an option is out of its range.
    """

    def __init__(
        self,
        preprocessing: Preprocessing | None = None,
        *,
        crop_size: int | None = None,
        resize: int | tuple[int, int] | None = None,
        interpolation: Interpolation = "bilinear",
    ) -> None:
        options = {"crop_size": crop_size, "resize": resize, "interpolation": interpolation}
        validate(Augment, options, "augmentation")
        self.preprocessing = Preprocessing() if preprocessing is None else preprocessing
        self.crop_size, self.resize, self.interpolation = crop_size, resize, interpolation

    def __call__(self, batch: Tensor | PixelBatch) -> Tensor:
        """Transform a batch.

        Args:
            batch: uint8, shape (B, H, W, C), on any device, alone or with the images' sizes.

        Returns:
            float32, shape (B, C, H, W) or (B, C, crop_size, crop_size), on the same device.

        Raises:
            UsageError: if the batch has another type, or if its images have different sizes and
                ``crop_size`` is None.
        """
        return self.preprocessing.normalize(self.render(*self.centre(batch)))

    def corrupted(self, batch: Tensor | PixelBatch, corruption: str, first_index: int) -> Tensor:
        """Transform a batch, and corrupt its crops, as uint8, before the preprocessing.

        Args:
            corruption: a name of :data:`pml_extensions.evaluation.CORRUPTIONS`.
            first_index: index of the batch's first image in its set. An image's random numbers
                depend on its index only.

        Raises:
            UsageError: as in a call, or if the corruption does not fit the images.
        """
        crops = self.render(*self.centre(batch))
        pixels = crops.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
        try:
            changed = corrupt(pixels, corruption, SEED, first_index=first_index)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return self.preprocessing.normalize(changed.permute(0, 3, 1, 2).float())

    def centre(self, batch: Tensor | PixelBatch) -> tuple[Tensor, Windows, tuple[int, int]]:
        """Check the batch and return its pixels, its centre crops and their size."""
        pixels, image_sizes = (batch, None) if isinstance(batch, Tensor) else batch
        check_batch(pixels, image_sizes)
        shapes = np.asarray([pixels.shape[1:3]]) if image_sizes is None else image_sizes.numpy()
        sizes = shapes.astype(np.float64)
        scaled = scaled_sizes(sizes, self.resize, self.crop_size)
        if self.crop_size is None:
            check_frame(sizes)
        side = sizes[0] if self.crop_size is None else (self.crop_size, self.crop_size)
        output = (int(side[0]), int(side[1]))
        return pixels, centre_crops(sizes, scaled, output), output

    def render(
        self,
        pixels: Tensor,
        windows: Windows,
        output: tuple[int, int],
        flip: np.ndarray | None = None,
    ) -> Tensor:
        """Cut or resample the windows, and mirror the images that ``flip``, (B,), marks.

        Returns:
            float32, shape (B, C, *output), values 0..255.
        """
        if self._interpolate_is_faster(pixels) and windows.can_be_resized(output):
            images = interpolate(pixels, windows, output)  # mirrored below
        elif windows.need_resampling(output):
            axes = axes_of(compose(windows, output, flip=flip), windows)  # including the mirroring
            return resample(pixels, axes, output, self.interpolation)
        else:
            images = cut(pixels, windows.start, output)  # mirrored below
        if flip is not None and flip.any():
            rows = torch.from_numpy(np.flatnonzero(flip)).to(images.device, non_blocking=True)
            images.index_copy_(0, rows, images[rows].flip(3))
        return images

    def _interpolate_is_faster(self, pixels: Tensor) -> bool:
        """Return whether ``interpolate`` is faster than ``resample`` and gives the same pixels.

        Its bilinear filter does; its bicubic filter differs from Pillow's.
        """
        large = min(pixels.shape[1:3]) >= _MIN_INTERPOLATE_SIDE
        return large and pixels.device.type == "cpu" and self.interpolation == "bilinear"
