"""Augmentation against torchvision, image by image, where it is installed."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from reality_check.data.augmentation import _color
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import PixelBatch

LEVELS = Preprocessing(mean=(0.0,), std=(1 / 255,))
SIZES = [(20 + 2 * i, 75 - i) for i in range(40)]


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    """torchvision's functions. Beside another build of torch its import is a RuntimeError."""
    try:
        return importlib.import_module("torchvision.transforms.v2.functional")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision is not usable here: {error}")


def batch_of(channels: int) -> PixelBatch:
    shape = (len(SIZES), *np.max(SIZES, axis=0), channels)
    pixels = np.random.default_rng(5).integers(0, 256, shape, dtype=np.uint8)
    return PixelBatch(torch.from_numpy(pixels), torch.tensor(SIZES))


def image_of(batch: PixelBatch, i: int) -> torch.Tensor:
    height, width = SIZES[i]
    return batch.pixels[i, :height, :width].permute(2, 0, 1)


def mode(interpolation: str) -> Any:
    return importlib.import_module("torchvision.transforms").InterpolationMode(interpolation)


# On uint8 torchvision rounds after each axis, as Pillow does; bicubic needs that for its cut-off.
@pytest.mark.parametrize(
    ("interpolation", "rounded", "tolerance"),
    [("bilinear", False, 0.01), ("bilinear", True, 1.01), ("bicubic", True, 1.25)],
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop_size", [12, 32, 90])
def test_resized_crop(
    peer: ModuleType,
    interpolation: Any,
    rounded: bool,
    tolerance: float,
    channels: int,
    crop_size: int,
) -> None:
    batch = batch_of(channels)
    augmentation = Augmentation(
        resized_crop_scale=(0.08, 1.0),
        horizontal_flip=0.5,
        crop_size=crop_size,
        interpolation=interpolation,
        preprocessing=LEVELS,
    )
    numbers = augmentation.draw(len(SIZES), torch.Generator().manual_seed(1))
    result = augmentation.apply(batch, numbers)
    _, centre, _ = augmentation.evaluation_transform().centre(batch)
    windows = augmentation._windows(centre, numbers)
    for i in range(len(SIZES)):
        image = image_of(batch, i) if rounded else image_of(batch, i).float()
        place = [int(v) for v in (*windows.start[i], *windows.extent[i])]
        options = {"interpolation": mode(interpolation), "antialias": True}
        expected = peer.resized_crop(image, *place, [crop_size, crop_size], **options).float()
        if numbers[i, 2] < 0.5:
            expected = peer.horizontal_flip(expected)
        torch.testing.assert_close(result[i], expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("resize", [None, 40, 30, (40, 33)])
def test_evaluation(peer: ModuleType, resize: int | tuple[int, int] | None) -> None:
    batch = batch_of(3)
    preprocessing = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    result = Normalize(preprocessing, crop_size=30, resize=resize)(batch)
    for i, (height, width) in enumerate(SIZES):
        side = list(resize) if isinstance(resize, tuple) else resize or max(30, min(height, width))
        image = peer.resize(image_of(batch, i).float(), side, antialias=True)
        expected = peer.center_crop(image, [30, 30]) / 255
        expected = peer.normalize(expected, list(preprocessing.mean), list(preprocessing.std))
        torch.testing.assert_close(result[i], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [0, 1, 2], [0, 1, 2, 3]])
def test_jitter(peer: ModuleType, channels: int, kinds: list[int]) -> None:
    draw = np.random.default_rng(2)
    images = torch.from_numpy(draw.uniform(0, 255, (16, channels, 9, 8))).float()
    factors = np.tile(_color.NEUTRAL, (16, 1))
    factors[:, kinds] = draw.uniform([0, 0, 0, -0.5], [2, 2, 2, 0.5], (16, 4))[:, kinds]
    keys = draw.random((16, 4))
    result = _color.jitter(images, factors, keys)
    names = ("adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue")
    for i in range(16):
        expected = images[i] / 255
        for kind in np.argsort(keys[i]):
            expected = getattr(peer, names[kind])(expected, float(factors[i, kind]))
        torch.testing.assert_close(result[i], 255 * expected, atol=0.01, rtol=0)


def test_grayscale(peer: ModuleType) -> None:
    images = torch.rand(4, 3, 5, 6) * 255
    result = _color.to_grey(images, np.asarray([0, 2]))
    expected = peer.rgb_to_grayscale(images, 3)
    torch.testing.assert_close(result[[0, 2]], expected[[0, 2]])
    assert torch.equal(result[[1, 3]], images[[1, 3]])
