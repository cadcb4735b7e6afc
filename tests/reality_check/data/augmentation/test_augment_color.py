"""Colour against plain loops with colorsys, and preprocessing against its formula."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch

from reality_check.data.augmentation import _color
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.utils.errors import UsageError

LEVELS = Preprocessing(mean=(0.0,), std=(1 / 255,))


def luma(rgb: np.ndarray) -> np.ndarray:
    """Grey of (..., 3) values; of grey images (..., 1) the value itself."""
    if rgb.shape[-1] == 1:
        return rgb[..., 0]
    return 0.2989 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]


def change(image: np.ndarray, kind: int, value: float) -> np.ndarray:
    """One jitter of one image (H, W, C) with values 0..1."""
    if kind == 3:
        if image.shape[2] == 1:
            return image
        pixels = []
        for red, green, blue in image.reshape(-1, 3):
            hue, saturation, lightness = colorsys.rgb_to_hsv(red, green, blue)
            pixels.append(colorsys.hsv_to_rgb((hue + value) % 1, saturation, lightness))
        return np.reshape(pixels, image.shape)
    other = [0.0, luma(image).mean(), luma(image)[:, :, None]][kind]
    return np.clip(value * image + (1 - value) * other, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [0, 2], [1, 3], [0, 1, 2], [0, 1, 2, 3]])
def test_jitter_equals_the_loop(channels: int, kinds: list[int]) -> None:
    draw = np.random.default_rng(len(kinds))
    images = draw.integers(0, 256, (12, 5, 6, channels))
    images[0] = 128  # grey pixels have no hue
    images[1, :, :, 1:] = images[1, :, :, :1]
    factors = np.tile(_color.NEUTRAL, (12, 1))
    drawn = draw.uniform([0, 0, 0, -0.5], [2, 2, 2, 0.5], (12, 4))
    factors[:, kinds] = drawn[:, kinds]
    keys = draw.random((12, 4))
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    result = _color.jitter(batch, factors, keys).permute(0, 2, 3, 1).numpy()
    for i, image in enumerate(images):
        expected = image / 255
        for kind in np.argsort(keys[i]):
            if kind in kinds:
                expected = change(expected, int(kind), factors[i, kind])
        np.testing.assert_allclose(result[i], 255 * expected, atol=0.01)


def test_orders_differ_from_image_to_image() -> None:
    """One image many times with one set of factors: six orders of three, six results."""
    images = torch.rand(1, 3, 4, 4).mul(255).repeat(200, 1, 1, 1)
    factors = np.tile([1.7, 0.4, 1.9, 0.0], (200, 1))
    keys = np.random.default_rng(0).random((200, 4))
    result = _color.jitter(images, factors, keys).flatten(1).round(decimals=1)
    assert len(torch.unique(result, dim=0)) == 6


def test_factors_have_torchvisions_ranges() -> None:
    augmentation = Augmentation(brightness=0.3, contrast=2.0, saturation=0.1, hue=0.2)
    numbers = augmentation.draw(2000, torch.Generator().manual_seed(0))
    factors = augmentation._factors(numbers)
    np.testing.assert_allclose(factors.min(axis=0), [0.7, 0, 0.9, -0.2], atol=0.01)
    np.testing.assert_allclose(factors.max(axis=0), [1.3, 3, 1.1, 0.2], atol=0.01)


def test_grayscale_has_its_probability() -> None:
    batch = torch.randint(0, 256, (400, 4, 4, 3), dtype=torch.uint8)
    augmentation = Augmentation(grayscale=0.3, preprocessing=LEVELS)
    result = augmentation(batch, torch.Generator().manual_seed(0))
    plain = Normalize(LEVELS)(batch)
    grey = torch.from_numpy(luma(batch.numpy())).float()[:, None].expand(-1, 3, -1, -1)
    is_grey = (result - grey).abs().amax((1, 2, 3)) < 0.01
    is_plain = (result - plain).abs().amax((1, 2, 3)) < 0.01
    assert bool((is_grey ^ is_plain).all())
    assert 0.22 < is_grey.float().mean() < 0.38


def test_grey_images_stay_grey_under_colour() -> None:
    batch = torch.randint(0, 256, (8, 4, 4, 1), dtype=torch.uint8)
    options = Augmentation(grayscale=1.0, saturation=0.5, hue=0.5, preprocessing=LEVELS)
    torch.testing.assert_close(options(batch, torch.Generator()), Normalize(LEVELS)(batch))


def test_bn_inception_gets_blue_first_and_0_to_255() -> None:
    batch = torch.randint(0, 256, (2, 3, 4, 3), dtype=torch.uint8)
    preprocessing = Preprocessing((104, 117, 128), (1,), scale=255, bgr=True)
    result = Normalize(preprocessing)(batch)
    expected = batch.flip(3).permute(0, 3, 1, 2) - torch.tensor([104.0, 117, 128])[:, None, None]
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=0)
    assert result.is_contiguous()


def test_a_grey_image_is_repeated_for_three_means() -> None:
    batch = torch.randint(0, 256, (2, 3, 4, 1), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    for bgr in (False, True):
        result = Normalize(Preprocessing(mean, std, bgr=bgr))(batch)
        assert result.shape == (2, 3, 3, 4)
        for channel in range(3):
            expected = (batch[..., 0] / 255 - mean[channel]) / std[channel]
            torch.testing.assert_close(result[:, channel], expected)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mean": (0.1, 0.2)}, "2 values; give one"),
        ({"std": (0.5, 0.5, 0.0)}, "greater than 0"),
        ({"mean": (float("nan"),)}, "finite"),
        ({"scale": 0}, "write 1 or 255"),
    ],
)
def test_refuses_preprocessing(options: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Preprocessing(**options)  # type: ignore[arg-type]


def test_grey_is_drawn_apart_from_the_flip() -> None:
    batch = torch.randint(0, 256, (100, 4, 4, 3), dtype=torch.uint8)
    augmentation = Augmentation(grayscale=0.5, horizontal_flip=0.5, preprocessing=LEVELS)
    result = augmentation(batch, torch.Generator().manual_seed(0))
    is_grey = (result[:, 0] - result[:, 2]).abs().amax((1, 2)) < 0.01
    weights = torch.tensor([0.2989, 0.587, 0.114])[:, None, None]
    light = (Normalize(LEVELS)(batch) * weights).sum(dim=1)
    found = (result * weights).sum(dim=1)
    is_flipped = (found - light).abs().amax((1, 2)) > (found - light.flip(2)).abs().amax((1, 2))
    pairs = torch.stack([is_grey, is_flipped], dim=1)
    assert len(torch.unique(pairs, dim=0)) == 4
