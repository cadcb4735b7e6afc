"""BN-Inception against facts of Cadene's definition (pretrainedmodels 0.7.4, not a dependency)."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import Tensor, nn

from reality_check.config.model import Model
from reality_check.models import BNInception
from reality_check.models.network import build_network
from reality_check.utils.errors import UsageError


def wave(shape: torch.Size, phase: float) -> Tensor:
    """Numbers from -1 to 1 that no random generator decides."""
    count = torch.arange(shape.numel(), dtype=torch.float64)
    return torch.sin(count * 1.7 + count.square() * 0.003 + phase).reshape(shape)


def fill(network: nn.Module) -> None:
    """Weights by a formula, of a size that keeps the activations near 1."""
    for number, (name, value) in enumerate(network.state_dict().items()):
        if value.ndim == 4:
            value.copy_(wave(value.shape, number) * (1.4 / value[0].numel()) ** 0.5)
        elif name.endswith(("running_var", "bn.weight")):
            value.copy_(1 + 0.5 * wave(value.shape, number))
        elif value.ndim:
            value.copy_(0.3 * wave(value.shape, number))


def test_names_and_shapes_are_those_of_the_weight_file() -> None:
    state = BNInception().state_dict()
    lines = sorted(f"{name} {tuple(value.shape)}" for name, value in state.items())
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "95b85597682195250ec3e27a848619c0afc640dd3bf71e0012238fb9cb3ba477"
    assert state["inception_3c_double_3x3_2_bn.running_mean"].shape == (96,)
    assert state["inception_4e_3x3.weight"].shape == (192, 128, 3, 3)
    # 11,295,240 with the classifier, 1024 x 1000 + 1000.
    assert sum(p.numel() for p in BNInception().parameters()) == 10_270_240


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (
            224,
            [
                0.428512981,
                0.749731352,
                6.89353553,
                0.431732632,
                0.391145502,
                0.447604196,
                0.479668008,
            ],
        ),
        (
            227,
            [
                0.428308695,
                0.749375241,
                6.88354773,
                0.431459858,
                0.391005768,
                0.447470962,
                0.479366349,
            ],
        ),
    ],
)
def test_outputs_of_the_reference_with_the_same_weights(side: int, expected: list[float]) -> None:
    trunk = BNInception().double().eval()
    fill(trunk)
    with torch.no_grad():
        maps = trunk(wave(torch.Size((1, 3, side, side)), 0.5))
    assert maps.shape == (1, 1024, 7, 7)
    # The four branches of the last block.
    branches = [part.mean() for part in maps[0].split([352, 320, 224, 128])]
    actual = [maps.mean(), maps.std(), maps.max(), *branches]
    torch.testing.assert_close(
        torch.stack(actual), torch.tensor(expected).double(), rtol=1e-6, atol=1e-9
    )


def test_grey_images_and_small_ones() -> None:
    assert BNInception(1)(torch.rand(2, 1, 64, 64)).shape == (2, 1024, 2, 2)


def test_sides_whose_maps_cannot_be_joined_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="bn_inception does not take images of 299x299"):
        build_network(Model(name="x", trunk="bn_inception"), (299, 299, 3), 4, seed=0)
