from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from reality_check.config.model import Model
from reality_check.models import Conv4, Conv4Pool
from reality_check.models.network import build_network
from reality_check.utils.errors import UsageError


def test_shapes() -> None:
    images = torch.rand(2, 1, 33, 50)
    assert Conv4(1, 5)(images).shape == (2, 5, 3, 4)
    assert Conv4Pool(1, 5)(images).shape == (2, 5, 2, 3)
    assert Conv4Pool(3)(torch.rand(2, 3, 84, 84)).flatten(1).shape == (2, 1600)


def test_conv4_pool_has_the_parameters_of_the_papers_but_for_the_biases() -> None:
    # 113,088 with 3 channels and 4 x 64 biases of convolutions.
    assert sum(p.numel() for p in Conv4Pool(3).parameters()) == 113_088 - 256


def test_conv4_pool_by_hand() -> None:
    trunk = Conv4Pool(1, 3).eval()
    images = torch.rand(2, 1, 16, 16)
    x = images
    for index in (0, 4, 8, 12):
        norm = trunk[index + 1]
        x = F.conv2d(x, trunk[index].weight, padding=1)
        x = (x - norm.running_mean[:, None, None]) / (norm.running_var + 1e-5).sqrt()[:, None, None]
        blocks = x.clamp(min=0).unfold(2, 2, 2).unfold(3, 2, 2)
        x = blocks.flatten(4).max(dim=4).values
    torch.testing.assert_close(trunk(images), x)


def test_images_that_are_pooled_away_are_a_usage_error() -> None:
    model = Model(name="x", trunk="conv4_pool")
    with pytest.raises(UsageError, match="conv4_pool does not take images of 15x20"):
        build_network(model, (15, 20, 1), 4, seed=0)


@pytest.mark.parametrize("trunk", ["conv4", "conv4_pool"])
@pytest.mark.parametrize("mode", ["paper", "official"])
def test_without_the_last_bn_and_relu_the_last_convolution_is_the_end(
    trunk: str, mode: str
) -> None:
    arguments = {"width": 3}
    whole, without = (
        build_network(
            Model(name="x", trunk=trunk, arguments=arguments, remove_last_bn_relu=removed),
            (32, 32, 1),
            4,
            seed=1,
        ).trunk
        for removed in ("no", mode)
    )
    assert isinstance(whole, Conv4 | Conv4Pool)
    kept = whole.state_dict()
    last = max(i for i, layer in enumerate(whole) if isinstance(layer, torch.nn.Conv2d))
    gone = {name for name in kept if name.startswith(f"{last + 1}.")}
    assert gone
    assert set(without.state_dict()) == set(kept) - gone
    images = torch.rand(5, 1, 32, 32)
    expected = torch.nn.Sequential(*list(whole)[: last + 1])(images)
    if trunk == "conv4_pool":
        expected = F.max_pool2d(expected, 2)
    actual = without(images)
    torch.testing.assert_close(actual, expected)
    assert (actual < 0).any()
