from __future__ import annotations

from typing import get_args

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from pml_extensions.modules import HEAD_PRESETS, build_head
from reality_check.config.model import Model
from reality_check.models import TRUNKS
from reality_check.models.network import NORMALIZATIONS, POOLINGS, Head, build_network
from reality_check.utils.errors import UsageError
from reality_check.utils.seeds import derive

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


def test_the_schema_knows_the_same_names() -> None:
    for field, names in {"pooling": POOLINGS, "normalization": NORMALIZATIONS}.items():
        literal, none = get_args(Model.model_fields[field].annotation)
        assert set(get_args(literal)) == set(names)
        assert none is type(None)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("pooling", POOLINGS)
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
    first = build_network(conv4(), (20, 17, 3), 5, seed=9).state_dict()
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(2)
    second = build_network(conv4(), (20, 17, 3), 5, seed=9).state_dict()
    third = build_network(conv4(), (20, 17, 3), 5, seed=10).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["embedder.weight"], third["embedder.weight"])
    assert not torch.equal(first["trunk.0.weight"], third["trunk.0.weight"])


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


# Papers' heads and embedders


@pytest.mark.parametrize("size", [4, 6])
@pytest.mark.parametrize("head", HEAD_PRESETS)
def test_a_papers_head_is_parted_before_its_embedder(head: str, size: int) -> None:
    network = build_network(preset(head), (33, 20, 3), size, seed=3)
    whole = build_head(head, 4, size)
    assert next(iter(whole.named_children()))[0] == "pooling"
    parts = [part for part in whole.children() if list(part.parameters())]
    learned = [tuple(p.shape) for part in parts for p in part.parameters()]
    assert [tuple(p.shape) for p in network.embedder.parameters()] == learned
    assert list(network.head.parameters()) == []
    state = [value for part in (network.head, network.embedder) for value in _values(part)]
    whole.load_state_dict(dict(zip(whole.state_dict(), state, strict=True)))
    images = torch.rand(5, 3, 33, 20)
    expected = whole(network.trunk(images))
    torch.testing.assert_close(network(images), expected)


def preset(head: str, **changes: object) -> Model:
    values = {"name": "x", "trunk": "conv4", "arguments": {"width": 4}, "head": head}
    return Model.model_validate({**values, **changes})


def _values(part: nn.Module) -> list[torch.Tensor]:
    return list(part.state_dict().values())


def test_bn_relu_modules_stand_before_the_neck() -> None:
    plain = build_network(preset("sgsl_paper"), (16, 16, 1), 6, seed=3)
    network = build_network(preset("sgsl_paper", bn_relu_modules=2), (16, 16, 1), 6, seed=3)
    x = torch.rand(8, 1, 16, 16)
    linear, neck = network.embedder.embedder, network.embedder.neck
    expected = linear(network.features(x))
    assert torch.equal(linear.weight, plain.embedder.embedder.weight)
    for _ in range(2):
        deviation = (expected.var(dim=0, unbiased=False) + 1e-5).sqrt()
        expected = ((expected - expected.mean(dim=0)) / deviation).clamp(min=0)
    torch.testing.assert_close(network(x), neck(expected), rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in network.embedder.parameters()) == 4 * 6 + 2 * 2 * 6


def test_the_embedder_of_realigned_softmax_warping() -> None:
    options = {"init": "kaiming_fan_out"}
    layer = build_network(conv4(embedder=options), (160, 160, 1), 200, seed=3).embedder
    assert layer.weight.shape == (200, 400)
    assert float(layer.weight.detach().std()) == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert not layer.bias.any()
    assert (
        build_network(conv4(embedder={"bias": False}), (16, 16, 1), 5, seed=3).embedder.bias is None
    )
    kept = build_network(conv4(embedder={"skip_if_equal": True}), (16, 16, 1), 4, seed=3)
    assert isinstance(kept.embedder, nn.Identity)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": "sgsl"}, "no head named 'sgsl'.*Did you mean 'sgsl_paper'"),
        ({"head": "hist", "pooling": "max"}, "head hist has its own pooling; remove one"),
        ({"head": "hist", "embedder": {}}, "head hist has its own embedder"),
        ({"head": "hist", "bn_relu_modules": 1}, "write head: sgsl_official or sgsl_paper"),
        ({"bn_relu_modules": -1}, "bn_relu_modules"),
        ({"last_stride": 3}, "last_stride"),
        ({"embedder": {"initialization": "x"}}, "initialization"),
        ({"preprocessing": {"mean": "grey"}}, "write a number, or one for each of 3 channels"),
        ({"preprocessing": {"std": [1, 2]}}, r"3 channels; got \[1, 2\]"),
    ],
)
def test_a_yaml_that_cannot_be(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Model.model_validate({"name": "x", **changes})


def test_what_the_yaml_says_in_short() -> None:
    model = Model.model_validate({"name": "x", "remove_last_bn_relu": True, "weights": None})
    assert (model.remove_last_bn_relu, model.weights) == ("paper", "none")
    assert Model.model_validate({"name": "x", "remove_last_bn_relu": False}) == Model(name="x")
    assert model.describe_head() == "pooling average, normalisation none"
    assert preset("hist").describe_head() == "head hist"


@pytest.mark.parametrize("model", [conv4(), preset("hist")])
def test_a_model_survives_being_written_and_read(model: Model) -> None:
    assert Model.model_validate(model.model_dump(by_alias=True, mode="json")) == model


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


# A neck, and changes of a model


def test_the_neck_of_heated_up_softmax_is_that_of_its_head() -> None:
    model = conv4()
    necked = build_network(model.changed({"neck": "heated_up_softmax"}), (16, 16, 1), 5, seed=3)
    headed = build_network(model.changed({"head": "heated_up_softmax_bn"}), (16, 16, 1), 5, seed=3)
    assert repr(necked.embedder.neck) == repr(headed.embedder.neck)
    images = torch.rand(20, 1, 16, 16)
    torch.testing.assert_close(necked(images), headed(images))
    torch.testing.assert_close(necked.eval()(images), headed.eval()(images))


def test_a_neck_standardises_what_the_embedder_gives_and_learns_nothing() -> None:
    plain, necked = (
        build_network(conv4().changed({"neck": neck}), (16, 16, 1), 5, seed=3)
        for neck in ("none", "batch_norm")
    )
    count = sum(p.numel() for p in plain.parameters())
    assert sum(p.numel() for p in necked.parameters()) == count
    images = torch.rand(20, 1, 16, 16)
    raw, actual = plain(images), necked(images)
    expected = (raw - raw.mean(dim=0)) / (raw.var(dim=0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(actual, expected)
    assert not torch.equal(necked.eval()(images), actual)


def test_a_head_has_its_own_neck() -> None:
    with pytest.raises(ValidationError, match="remove neck or head"):
        preset("sgsl_paper", neck="batch_norm")


def test_changes_replace_whole_keys_and_leave_the_others() -> None:
    model = Model(name="x", arguments={"width": 4}, pooling="max", embedder={"bias": False})
    changed = model.changed({"normalization": "layer_norm", "arguments": {"width": 8}})
    assert changed.model_dump() == model.model_dump() | {
        "normalization": "layer_norm",
        "arguments": {"width": 8},
    }
    assert model.normalization == "none"
    assert model.changed({}) == model


def test_a_head_takes_the_place_of_its_parts_and_they_of_a_head() -> None:
    parts = Model(name="x", pooling="flatten", neck="batch_norm")
    headed = parts.changed({"head": "sgsl_paper", "bn_relu_modules": 2})
    assert (headed.head, headed.pooling, headed.neck) == ("sgsl_paper", None, "none")
    again = headed.changed({"pooling": "max"})
    assert (again.head, again.pooling, again.bn_relu_modules) == (None, "max", 0)
    assert again.normalization == "none"
