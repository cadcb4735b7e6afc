from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from reality_check.models import Conv4
from reality_check.models.stem import set_last_stride_to_one, sum_input_channels
from reality_check.utils.errors import UsageError


def test_a_grey_image_gives_what_it_gave_repeated_thrice() -> None:
    rgb = nn.Sequential(nn.Sequential(nn.Conv2d(3, 5, 7, 2, 3)), nn.ReLU(), nn.Conv2d(5, 3, 3))
    grey = copy.deepcopy(rgb)
    sum_input_channels(grey)
    images = torch.rand(2, 1, 20, 21)
    torch.testing.assert_close(grey(images), rgb(images.expand(-1, 3, -1, -1)))
    assert grey[0][0].weight.requires_grad
    assert grey[0][0].weight.shape == (5, 1, 7, 7)


class Staged(nn.Module):
    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.layer4 = nn.Sequential(*parts)


def test_convolutions_of_the_last_stage_get_stride_one() -> None:
    trunk = Staged(nn.Conv2d(2, 3, 3, 2, 1), nn.Conv2d(3, 3, 3, 1, 1))
    weights = [p.clone() for p in trunk.parameters()]
    set_last_stride_to_one(trunk, "trunk x")
    assert trunk.layer4(torch.rand(1, 2, 8, 8)).shape == (1, 3, 8, 8)
    assert all(torch.equal(a, b) for a, b in zip(weights, trunk.parameters(), strict=True))


@pytest.mark.parametrize(
    ("trunk", "words"),
    [
        (Conv4(1), "ResNets, whose last stage is layer4, but the trunk x is a Conv4"),
        (Staged(nn.Conv2d(2, 3, 3)), "has stride 1"),
        (Staged(nn.Conv2d(2, 3, 3, 2), nn.AvgPool2d(2)), "halves its maps by AvgPool2d"),
    ],
)
def test_trunks_without_such_a_stage(trunk: nn.Module, words: str) -> None:
    before = copy.deepcopy(trunk)
    with pytest.raises(UsageError, match=words):
        set_last_stride_to_one(trunk, "trunk x")
    assert str(trunk) == str(before)
