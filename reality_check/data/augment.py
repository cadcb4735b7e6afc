"""Augmentation of whole batches on the device that trains: one affine map, one resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from reality_check.errors import UsageError

_CROP_ATTEMPTS = 10


class Normalize:
    """Turn uint8 images into normalised floats, without chance: what evaluation uses.

    The result is ``(image / 255 - mean) / std``, cut to the centre where ``output_size`` is given.

    Args:
        mean: one value for all channels or one per channel, for images scaled to 0..1.
        std: the same, positive.
        output_size: side of the square centre crop in pixels; None keeps the image's size.
    """

    def __init__(
        self,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        output_size: int | None = None,
    ) -> None:
        self._mean = torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1)
        self._std = torch.as_tensor(std, dtype=torch.float32).reshape(-1, 1, 1)
        self.output_size = output_size
        if not bool((self._std > 0).all()):
            raise UsageError(f"std={std}, but every value must be greater than 0.")
        if output_size is not None and output_size < 1:
            raise UsageError(f"output_size={output_size}, but it must be at least 1 pixel.")

    def __call__(self, batch: Tensor) -> Tensor:
        """Normalise a batch.

        Args:
            batch: uint8, shape (B, H, W, C), on any device.

        Returns:
            float32, shape (B, C, H, W) or (B, C, output_size, output_size), on the same device.
        """
        self.check(batch)
        height, width = self.output_shape(batch)
        top = round((batch.shape[1] - height) / 2)  # as torchvision's CenterCrop rounds
        left = round((batch.shape[2] - width) / 2)
        crop = batch[:, top : top + height, left : left + width]
        return self.scale(crop.permute(0, 3, 1, 2).to(torch.float32))

    def scale(self, images: Tensor) -> Tensor:
        """Normalise float images (B, C, H, W) with values 0..255."""
        mean, std = self._mean.to(images.device), self._std.to(images.device)
        return ((images - 255 * mean) / (255 * std)).contiguous()

    def output_shape(self, batch: Tensor) -> tuple[int, int]:
        """Height and width of the result for ``batch`` (B, H, W, C)."""
        if self.output_size is None:
            return int(batch.shape[1]), int(batch.shape[2])
        return self.output_size, self.output_size

    def check(self, batch: Tensor) -> None:
        """Raise UsageError unless ``batch`` is uint8 (B, H, W, C) that fits mean, std and crop."""
        if batch.dtype != torch.uint8 or batch.ndim != 4:
            raise UsageError(
                f"The batch is {batch.dtype} of shape {tuple(batch.shape)}, but it must be "
                "torch.uint8 of shape (B, H, W, C)."
            )
        channels = {len(self._mean), len(self._std)} - {1, batch.shape[3]}
        if channels:
            raise UsageError(
                f"mean or std has {channels.pop()} values, but the images have {batch.shape[3]} "
                "channels; give one value, or one per channel."
            )
        if self.output_size is not None and self.output_size > min(batch.shape[1:3]):
            raise UsageError(
                f"output_size={self.output_size}, but the images are only {batch.shape[1]} x "
                f"{batch.shape[2]} pixels; write at most {min(batch.shape[1:3])}."
            )


class Augmentation:
    """Random affine maps, flips and crops of a whole batch, then :class:`Normalize`.

    Every image gets its own parameters. They are drawn on the CPU from the generator that the call
    is given, so that all devices see the same numbers, and composed into one map per image that is
    resampled once (bilinear, without a low-pass filter; beyond the border the edge pixels are
    repeated, which keeps paper white). All options are off by default, and with all of them off
    nothing is drawn and the result is that of :class:`Normalize`.

    Args:
        rotation: largest angle in degrees, drawn from [-rotation, rotation].
        scale: (low, high) enlargement of the content, drawn log-uniformly; positive.
        shear: largest shear angle in degrees along x and along y, each from [-shear, shear].
        translation: largest shift along each axis as a fraction of the image's side.
        horizontal_flip: probability of mirroring left and right.
        resized_crop_scale: (low, high) fraction of the image's area that a random crop keeps,
            within (0, 1]; None for no random crop.
        resized_crop_ratio: (low, high) width / height of the random crop, drawn log-uniformly;
            used with ``resized_crop_scale`` only.
        mean: see :class:`Normalize`.
        std: see :class:`Normalize`.
        output_size: side of the result in pixels; None keeps the image's size. Without
            ``resized_crop_scale`` the result is the centre of the image.

    Raises:
        UsageError: if an option is out of its range.
    """

    def __init__(
        self,
        *,
        rotation: float = 0.0,
        scale: tuple[float, float] = (1.0, 1.0),
        shear: float = 0.0,
        translation: float = 0.0,
        horizontal_flip: float = 0.0,
        resized_crop_scale: tuple[float, float] | None = None,
        resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        output_size: int | None = None,
    ) -> None:
        _check_range("rotation", rotation, 0, 180)
        _check_range("shear", shear, 0, 80)
        _check_range("translation", translation, 0, 1)
        _check_range("horizontal_flip", horizontal_flip, 0, 1)
        _check_pair("scale", scale, math.inf)
        _check_pair("resized_crop_ratio", resized_crop_ratio, math.inf)
        if resized_crop_scale is not None:
            _check_pair("resized_crop_scale", resized_crop_scale, 1)
        self.rotation, self.scale, self.shear = rotation, tuple(scale), shear
        self.translation, self.horizontal_flip = translation, horizontal_flip
        self.resized_crop_scale, self.resized_crop_ratio = resized_crop_scale, resized_crop_ratio
        self._normalize = Normalize(mean, std, output_size)

    @property
    def is_off(self) -> bool:
        """Whether no option is on, so that nothing is random."""
        options = (self.rotation, self.shear, self.translation, self.horizontal_flip)
        return not any(options) and self.scale == (1.0, 1.0) and self.resized_crop_scale is None

    def evaluation_transform(self) -> Normalize:
        """Return the transform without chance that fits this augmentation."""
        return self._normalize

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        """Augment and normalise a batch.

        Args:
            batch: uint8, shape (B, H, W, C), on any device.
            generator: a CPU generator; left untouched where all options are off.

        Returns:
            float32, shape (B, C, H, W) or (B, C, output_size, output_size), on the batch's device.
        """
        if self.is_off:
            return self._normalize(batch)
        self._normalize.check(batch)
        output = self._normalize.output_shape(batch)
        theta = self._theta(batch, output, generator)
        theta = theta.to(batch.device, torch.float32, non_blocking=True)
        images = batch.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        shape = [len(batch), batch.shape[3], *output]
        grid = functional.affine_grid(theta, shape, align_corners=False)
        moved = functional.grid_sample(
            images, grid, mode="bilinear", padding_mode="border", align_corners=False
        )
        return self._normalize.scale(moved)

    def _theta(self, batch: Tensor, output: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Return (B, 2, 3) maps from output to input, both in affine_grid's -1..1 coordinates."""
        size, height, width = batch.shape[:3]
        half_input = torch.tensor([width / 2, height / 2], dtype=torch.float64)
        centre, half_window = self._window(size, (height, width), output, generator)
        inverse = torch.linalg.inv(self._linear(size, generator))
        shift = self.translation * _uniform(generator, (size, 2), -1, 1) * 2 * half_input
        matrix = inverse * half_window[:, None, :] / half_input[:, None]
        offset = (inverse @ (centre - shift)[:, :, None])[:, :, 0] / half_input
        return torch.cat([matrix, offset[:, :, None]], dim=2)

    def _linear(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw (B, 2, 2) maps of the content: flip, then shear, then rotate and scale."""
        angle = self.rotation * _uniform(generator, (size,), -1, 1) * math.pi / 180
        shear = torch.tan(self.shear * _uniform(generator, (size, 2), -1, 1) * math.pi / 180)
        factor = _log_uniform(generator, (size,), self.scale)
        flip = torch.where(_uniform(generator, (size,), 0, 1) < self.horizontal_flip, -1.0, 1.0)
        cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
        rotate = torch.stack([cos, -sin, sin, cos], dim=1).reshape(size, 2, 2)
        ones = torch.ones(size, dtype=torch.float64)
        slant_x = torch.stack([ones, shear[:, 0], 0 * ones, ones], dim=1).reshape(size, 2, 2)
        slant_y = torch.stack([ones, 0 * ones, shear[:, 1], ones], dim=1).reshape(size, 2, 2)
        mirror = torch.stack([flip, ones], dim=1)
        return (rotate @ slant_x @ slant_y) * mirror[:, None, :]

    def _window(
        self,
        size: int,
        shape: tuple[int, int],
        output: tuple[int, int],
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Draw the windows of the input that become the output.

        Returns:
            Centre (relative to the image's) and half extent, each (B, 2) as x, y in pixels.
        """
        if self.resized_crop_scale is None:
            half = torch.tensor([output[1] / 2, output[0] / 2], dtype=torch.float64)
            return torch.zeros(size, 2, dtype=torch.float64), half.expand(size, 2)
        sides = self._crop_sides(size, shape, generator)
        full = torch.tensor([shape[1], shape[0]], dtype=torch.float64)
        place = _uniform(generator, (size, 2), -0.5, 0.5)
        return place * (full - sides), sides / 2

    def _crop_sides(self, size: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Draw (B, 2) widths and heights: the first of ten tries that fits, else the largest."""
        assert self.resized_crop_scale is not None
        height, width = shape
        tries = (size, _CROP_ATTEMPTS)
        area = height * width * _uniform(generator, tries, *self.resized_crop_scale)
        ratio = _log_uniform(generator, tries, self.resized_crop_ratio)
        sides = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], dim=2)
        full = torch.tensor([width, height], dtype=torch.float64)
        fits = (sides <= full).all(dim=2)
        first = fits.to(torch.uint8).argmax(dim=1)
        drawn = sides[torch.arange(size), first]
        ratio_of_all = min(
            max(width / height, self.resized_crop_ratio[0]), self.resized_crop_ratio[1]
        )
        largest = torch.tensor(
            [min(width, height * ratio_of_all), min(height, width / ratio_of_all)],
            dtype=torch.float64,
        )
        return torch.where(fits.any(dim=1, keepdim=True), drawn, largest)


def _uniform(generator: torch.Generator, shape: tuple[int, ...], low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def _log_uniform(
    generator: torch.Generator, shape: tuple[int, ...], pair: tuple[float, ...]
) -> Tensor:
    return torch.exp(_uniform(generator, shape, math.log(pair[0]), math.log(pair[1])))


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name}={value}, but it must lie within {low}..{high} (0 turns it off).")


def _check_pair(name: str, pair: tuple[float, float], most: float) -> None:
    low, high = pair
    if not 0 < low <= high <= most:
        limit = "" if math.isinf(most) else f" <= {most}"
        raise UsageError(
            f"{name}={tuple(pair)}, but it must be (low, high) with 0 < low <= high{limit}."
        )
