"""Augmentation against torchvision, image by image, where it is installed."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
import torch

from reality_check.data.augmentation import _color


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    """torchvision's functions. Beside another build of torch its import is a RuntimeError."""
    try:
        return importlib.import_module("torchvision.transforms.v2.functional")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision is not usable here: {error}")


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
