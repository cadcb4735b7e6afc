from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from reality_check.config.model import Model
from reality_check.errors import UsageError
from reality_check.model import TRUNKS, Head, build_network
from reality_check.seeds import derive

MAPS = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [0.0, 4.0]]]])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("average", [3.0, 1.0]),
        ("max", [6.0, 4.0]),
        ("average_plus_max", [9.0, 5.0]),
        # The cube roots of (1 + 8 + 27 + 216) / 4 and 64 / 4.
        ("gem", [63 ** (1 / 3), 16 ** (1 / 3)]),
        ("flatten", [1.0, 2.0, 3.0, 6.0, 0.0, 0.0, 0.0, 4.0]),
    ],
)
def test_pooling(pooling: str, expected: list[float]) -> None:
    head = Head(pooling, "none", len(expected))
    torch.testing.assert_close(head(MAPS), torch.tensor([expected]))
    vectors = torch.rand(3, len(expected))
    assert torch.equal(head(vectors), vectors)


def test_layer_norm_has_no_parameters_and_standardises_each_row() -> None:
    head = Head("average", "layer_norm", 16)
    rows = head(torch.randn(5, 16) * 7 + 3)
    torch.testing.assert_close(rows.mean(dim=1), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.var(dim=1, unbiased=False), torch.ones(5), atol=1e-3, rtol=0)
    assert list(head.parameters()) == []


def test_batch_norm_has_no_parameters_and_standardises_each_column() -> None:
    head = Head("average", "batch_norm", 16)
    x = torch.randn(50, 16) * 7 + 3
    columns = head(x)
    torch.testing.assert_close(columns.mean(dim=0), torch.zeros(16), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        columns.var(dim=0, unbiased=False), torch.ones(16), atol=1e-3, rtol=0
    )
    assert list(head.parameters()) == []
    for _ in range(200):
        head(x)
    torch.testing.assert_close(head.eval()(x), columns, atol=0.1, rtol=0)


@pytest.mark.parametrize("normalization", get_args(Model.model_fields["normalization"].annotation))
@pytest.mark.parametrize("pooling", get_args(Model.model_fields["pooling"].annotation))
def test_every_head_that_a_yaml_may_name(pooling: str, normalization: str) -> None:
    model = conv4(pooling=pooling, normalization=normalization)
    network = build_network(model, (32, 32, 1), 5, seed=0)
    assert network(torch.rand(3, 1, 32, 32)).shape == (3, 5)
    assert network.eval()(torch.rand(1, 1, 32, 32)).isfinite().all()


def conv4(**changes: object) -> Model:
    values = {"name": "x", "trunk": "conv4", "arguments": {"width": 4}, "pooling": "flatten"}
    return Model.model_validate({**values, **changes})


def test_weights_come_from_the_seed_and_nothing_else_is_drawn() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    one = build_network(conv4(), (20, 17, 3), 5, seed=9).state_dict()
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(2)
    two = build_network(conv4(), (20, 17, 3), 5, seed=9).state_dict()
    three = build_network(conv4(), (20, 17, 3), 5, seed=10).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["embedder.weight"], three["embedder.weight"])
    assert not torch.equal(one["trunk.0.weight"], three["trunk.0.weight"])


def test_building_leaves_batchnorm_untouched_and_in_training_mode() -> None:
    network = build_network(conv4(), (16, 16, 1), 5, seed=0)
    assert all(part.training for part in network.modules())
    assert float(network.state_dict()["trunk.1.num_batches_tracked"]) == 0
    assert torch.equal(network.state_dict()["trunk.1.running_mean"], torch.zeros(4))


def test_shapes() -> None:
    network = build_network(conv4(), (33, 20, 3), 5, seed=0)
    images = torch.rand(2, 3, 33, 20)
    assert network(images).shape == (2, 5)
    # ceil(33 / 16) x ceil(20 / 16) maps of 4 channels
    assert network.features(images).shape == (2, 3 * 2 * 4)


class Tokens(nn.Module):
    """A trunk that returns neither maps nor vectors."""

    def __init__(self, channels: int) -> None:
        super().__init__()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(2)


@pytest.mark.parametrize("pooling", ["average", "gem", "flatten"])
def test_a_trunk_that_returns_tokens_is_a_usage_error(
    pooling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRUNKS, "conv4", Tokens)
    with pytest.raises(UsageError, match=r"must return .*\(1, 3, 256\)"):
        build_network(conv4(arguments={}, pooling=pooling), (16, 16, 3), 4, seed=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trunk": "conv5"}, "'conv5'.*conv4"),
        ({"trunk": "torch.nn.Nothing"}, "Nothing"),
        ({"arguments": {"widht": 4}}, "'widht'.*mean 'width'"),
        (
            {"trunk": "torch.nn.Linear", "arguments": {"in_features": 3, "out_features": 2}},
            "images",
        ),
    ],
)
def test_a_trunk_that_cannot_be_used_is_a_usage_error(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        build_network(conv4(**changes), (16, 16, 1), 4, seed=0)


def test_seeds_depend_on_every_part() -> None:
    seeds = {
        derive(*parts)
        for parts in [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1)]
    }
    assert len(seeds) == 7
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Fixed for ever: seeds that changed with a release would change every result.
    assert derive(0, "search", 3) == derive(0, "search", "3") == 5189971300256938528
