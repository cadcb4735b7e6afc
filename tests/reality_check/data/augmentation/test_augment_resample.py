"""Resampling against Pillow, and the grid against a plain loop."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image

from reality_check.data.augmentation import normalize
from reality_check.data.augmentation._maps import compose, inverse_maps
from reality_check.data.augmentation._resample import resample_grid
from reality_check.data.augmentation._windows import centre_crops
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import PixelBatch

LEVELS = Preprocessing(mean=(0.0,), std=(1 / 255,))
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
Interpolation = Literal["bilinear", "bicubic"]


def batch_of(sizes: list[tuple[int, int]], channels: int) -> PixelBatch:
    draw = np.random.default_rng(5)
    shape = (len(sizes), *np.max(sizes, axis=0), channels)
    pixels = torch.from_numpy(draw.integers(0, 256, shape, dtype=np.uint8))
    return PixelBatch(pixels, torch.tensor(sizes))


def pillow(pixels: torch.Tensor, size: tuple[int, int]) -> Image.Image:
    array = pixels[: size[0], : size[1]].numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


def resized(image: Image.Image, size: tuple[int, int], interpolation: str) -> Image.Image:
    """Width first, as torchvision and older Pillows; newer ones take the cheaper axis first."""
    lines = image.resize((size[1], image.height), FILTERS[interpolation])
    return lines.resize((size[1], size[0]), FILTERS[interpolation])


def levels(image: Image.Image) -> torch.Tensor:
    array = np.asarray(image, dtype=np.float32)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("crop_size", [8, 24, 90])
def test_resized_crops_are_pillows(
    channels: int, interpolation: Interpolation, crop_size: int
) -> None:
    sizes = [(20 + 3 * i, 70 - 2 * i) for i in range(20)]
    batch = batch_of(sizes, channels)
    augmentation = Augmentation(
        resized_crop_scale=(0.08, 1.0),
        horizontal_flip=0.5,
        crop_size=crop_size,
        interpolation=interpolation,
        preprocessing=LEVELS,
    )
    numbers = augmentation.draw(len(sizes), torch.Generator().manual_seed(1))
    result = augmentation.apply(batch, numbers)
    _, centre, _ = augmentation.evaluation_transform().centre(batch)
    windows = augmentation._windows(centre, numbers)
    flips = 0
    for i, size in enumerate(sizes):
        (top, left), (height, width) = windows.start[i], windows.extent[i]
        image = pillow(batch.pixels[i], size).crop((left, top, left + width, top + height))
        expected = levels(resized(image, (crop_size, crop_size), interpolation))
        mirrored = (result[i] - expected.flip(2)).abs().max() < (result[i] - expected).abs().max()
        flips += int(mirrored)
        expected = expected.flip(2) if mirrored else expected
        torch.testing.assert_close(result[i], expected, atol=1.25, rtol=0)
    assert 3 < flips < 17


@pytest.mark.parametrize(
    "crops", [{"resized_crop_scale": (0.08, 1.0)}, {"random_crop": True, "resize": 40}, {}]
)
def test_torch_resizes_photographs_the_same(
    crops: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [(20 + 3 * i, 70 - 2 * i) for i in range(20)]
    batch = batch_of(sizes, 3)
    augmentation = Augmentation(
        horizontal_flip=0.5, crop_size=30, preprocessing=LEVELS, **{"resize": None, **crops}
    )
    numbers = augmentation.draw(len(sizes), torch.Generator().manual_seed(1))
    ours = augmentation.apply(batch, numbers)
    monkeypatch.setattr(normalize, "_MIN_INTERPOLATE_SIDE", 1)
    torchs = augmentation.apply(batch, numbers)
    assert not torch.equal(ours, torchs), "two ways, with their own rounding"
    torch.testing.assert_close(ours, torchs, atol=0.01, rtol=0)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("crop_size", "resize"), [(30, None), (30, 40), (30, 30), (24, (33, 40)), (70, None)]
)
def test_evaluation_is_pillows_resize_and_a_cut(
    crop_size: int, resize: int | tuple[int, int] | None, interpolation: Interpolation
) -> None:
    sizes = [(20, 44), (44, 20), (30, 30), (31, 64), (64, 40), (25, 26)]
    batch = batch_of(sizes, 3)
    transform = Normalize(LEVELS, crop_size=crop_size, resize=resize, interpolation=interpolation)
    result = transform(batch)
    for i, (height, width) in enumerate(sizes):
        image = pillow(batch.pixels[i], (height, width))
        short = min(height, width)
        if isinstance(resize, tuple):
            new = resize
        else:
            wanted = resize or max(short, crop_size)
            new = (
                wanted if height == short else int(wanted * height / short),
                wanted if width == short else int(wanted * width / short),
            )
        expected = levels(resized(image, new, interpolation))
        top, left = round((new[0] - crop_size) / 2), round((new[1] - crop_size) / 2)
        expected = expected[:, top : top + crop_size, left : left + crop_size]
        torch.testing.assert_close(result[i], expected, atol=1.25, rtol=0)


def test_a_cut_copies_pixels() -> None:
    sizes = [(20, 44), (44, 20), (30, 30), (17, 64)]
    batch = batch_of(sizes, 3)
    result = Normalize(LEVELS, crop_size=17)(batch)
    for i, (height, width) in enumerate(sizes):
        top, left = round((height - 17) / 2), round((width - 17) / 2)
        expected = batch.pixels[i, top : top + 17, left : left + 17].permute(2, 0, 1).float()
        torch.testing.assert_close(result[i], expected, atol=1e-4, rtol=0)


def test_shrunk_content_keeps_its_edges_outside() -> None:
    """Half size: the outer half of the result repeats the border, as wide as the filter sees."""
    column = torch.tensor([10, 10, 10, 200, 100, 50, 90, 90, 90], dtype=torch.uint8)
    batch = column[None, None, :, None].repeat(1, 9, 1, 1)
    augmentation = Augmentation(scale=(0.5, 0.5), preprocessing=LEVELS)
    row = augmentation(batch, torch.Generator())[0, 0, 4]
    torch.testing.assert_close(row[:3], torch.full((3,), 10.0))
    torch.testing.assert_close(row[6:], torch.full((3,), 90.0))
    # Output pixel 4 sits on input pixel 4; taps at distances 0, 1, 1 of a filter of width 2.
    assert row[4].item() == pytest.approx((100 + 0.5 * 200 + 0.5 * 50) / 2, abs=1e-3)


def test_grid_equals_a_plain_loop() -> None:
    """Positions by undoing the motion step by step, then bilinear by hand."""
    sizes, output = [(9, 12), (11, 7)], (6, 8)
    batch = batch_of(sizes, 1)
    angle, shear, factor = [20.0, -35.0], [(5.0, -8.0), (12.0, 3.0)], [1.3, 0.8]
    shift, flip = [(0.1, -0.2), (0.05, 0.3)], [True, False]
    inverse = inverse_maps(np.asarray(angle), np.asarray(shear), np.asarray(factor))
    shape = np.asarray(sizes, dtype=np.float64)
    windows = centre_crops(shape, shape, output)
    maps = compose(windows, output, inverse, np.asarray(shift), np.asarray(flip))
    result = resample_grid(batch.pixels, maps, shape, output)
    for i, (height, width) in enumerate(sizes):
        for oy in range(output[0]):
            for ox in range(output[1]):
                left = output[1] - 1 - ox if flip[i] else ox
                y = round((height - output[0]) / 2) + oy + 0.5 - height / 2 - shift[i][0] * height
                x = round((width - output[1]) / 2) + left + 0.5 - width / 2 - shift[i][1] * width
                y, x = undo(y, x, angle[i], shear[i], factor[i])
                y, x = y + height / 2 - 0.5, x + width / 2 - 0.5
                y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                value = bilinear(batch.pixels[i, :, :, 0].numpy(), y, x)
                assert float(result[i, 0, oy, ox]) == pytest.approx(value, abs=0.01)


def undo(
    y: float, x: float, angle: float, shear: tuple[float, float], factor: float
) -> tuple[float, float]:
    """Content is sheared along y, then along x, then turned and enlarged; here it goes back."""
    turn = math.radians(angle)
    x, y = (
        (math.cos(turn) * x + math.sin(turn) * y) / factor,
        (-math.sin(turn) * x + math.cos(turn) * y) / factor,
    )
    x -= math.tan(math.radians(shear[0])) * y
    y -= math.tan(math.radians(shear[1])) * x
    return y, x


def bilinear(image: np.ndarray, y: float, x: float) -> float:
    top, left = int(y), int(x)
    bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
    fy, fx = y - top, x - left
    above = (1 - fx) * float(image[top, left]) + fx * float(image[top, right])
    below = (1 - fx) * float(image[bottom, left]) + fx * float(image[bottom, right])
    return (1 - fy) * above + fy * below
