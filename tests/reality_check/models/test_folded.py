"""BatchNorms folded into the layers before them compute the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reality_check.config import Model
from reality_check.models.folded import FoldedNetwork
from reality_check.models.network import build_network

NETWORKS: dict[str, tuple[dict[str, Any], int, int]] = {
    "bn_inception": ({"trunk": "bn_inception"}, 64, 69),
    "resnet18": ({"trunk": "torchvision:resnet18"}, 32, 20),
    "conv4": ({"trunk": "conv4"}, 28, 4),
    "neck": ({"trunk": "conv4", "neck": "batch_norm"}, 28, 4),  # ours is more than a BatchNorm
}


def network_of(name: str) -> nn.Module:
    """With statistics and factors that are no ones and zeros."""
    options, side, _ = NETWORKS[name]
    network = build_network(Model(name="x", **options), (side, side, 3), 8, seed=0)
    change(network, 1)
    return network


@torch.no_grad()
def change(network: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_(generator=generator)
            part.running_var.uniform_(0.5, 2, generator=generator)
            if part.affine:
                part.weight.uniform_(0.5, 2, generator=generator)
                part.bias.normal_(generator=generator)


@torch.no_grad()
def embeddings(forward: Any, network: nn.Module, images: Tensor) -> Tensor:
    network.eval()
    found: Tensor = forward(images)
    network.train()
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_folded_networks_embed_as_they_are(name: str) -> None:
    if name == "resnet18":
        pytest.importorskip("torchvision")
    network, (_, side, count) = network_of(name), NETWORKS[name]
    images = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    folded = FoldedNetwork(network)
    assert folded.count == count
    assert all(part.training for part in network.modules())
    for seed in (1, 2):
        change(network, seed)
        folded.refresh()
        expected = embeddings(network, network, images)
        found = embeddings(folded, network, images)
        assert (found - expected).norm() < 1e-5 * expected.norm()
        assert not torch.equal(found, expected), "it was not folded"
        if seed == 1:
            torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


class Chain(nn.Module):
    """A convolution that two parts take, one that is taken twice, and one to be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(3, 3, 1, bias=False) for _ in range(3))
        self.first, self.second, self.third = (nn.BatchNorm2d(3) for _ in range(3))
        self.fourth = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = self.first(x) + x
        x = self.second(self.b(self.second(self.b(x))))
        return self.fourth(self.third(self.c(x)))


def test_what_others_take_too_is_not_folded() -> None:
    chain = Chain()
    change(chain.first, 3)
    change(chain.second, 4)
    change(chain.third, 5)
    folded, x = FoldedNetwork(chain), torch.randn(2, 3, 4, 4)
    assert folded.count == 1
    expected = embeddings(chain, chain, x)
    torch.testing.assert_close(embeddings(folded, chain, x), expected, rtol=1e-4, atol=1e-4)


def test_a_network_that_looks_at_values_cannot_be_folded() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) if x.sum() > 0 else x

    around = Around()
    with pytest.raises(torch.fx.proxy.TraceError):
        FoldedNetwork(around)
    assert around.training
