"""The papers' heads: each recomputed with torch's functions from the head's own weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions.modules import HEAD_PRESETS, build_head

C, D = 24, 6
State = dict[str, Tensor]


def maps(channels: int = C) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(5, channels, 3, 4, generator=generator, dtype=torch.float64)


def average(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def maximum(x: Tensor) -> Tensor:
    return F.adaptive_max_pool2d(x, 1).flatten(1)


def gem(x: Tensor) -> Tensor:
    return average(x.clamp(min=1e-6).pow(3)).pow(1 / 3)


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:])


def linear(x: Tensor, state: State) -> Tensor:
    return F.linear(x, state["embedder.weight"], state.get("embedder.bias"))


def batch_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)


EXPECTED: dict[str, Callable[[Tensor, State], Tensor]] = {
    "sgsl_official": lambda x, s: batch_norm(linear(gem(x), s), s["neck.weight"]),
    "sgsl_paper": lambda x, s: batch_norm(linear(gem(x), s)),
    "normalized_softmax": lambda x, s: F.normalize(linear(layer_norm(average(x)), s)),
    "heated_up_softmax": lambda x, s: linear(average(x), s),
    "heated_up_softmax_bn": lambda x, s: batch_norm(linear(average(x), s), eps=1e-3),
    "heated_up_softmax_bn_official": lambda x, s: batch_norm(
        linear(average(x), s), bias=s["neck.bias"], eps=1e-3
    ),
    "grad_ml": lambda x, s: F.normalize(linear(average(x), s)),
    "warped_softmax": lambda x, s: linear(layer_norm(average(x) + maximum(x)), s),
    "warped_softmax_sop": lambda x, s: linear(layer_norm(average(x) + maximum(x)), s),
    "proxy_nca_plus_plus": lambda x, s: linear(layer_norm(maximum(x)), s),
    "hist": lambda x, s: layer_norm(linear(average(x) + maximum(x), s)),
}
CHILDREN = {
    "sgsl_official": ["pooling", "embedder", "neck"],
    "sgsl_paper": ["pooling", "embedder", "neck"],
    "normalized_softmax": ["pooling", "normalization", "embedder", "unit_length"],
    "heated_up_softmax": ["pooling", "embedder"],
    "heated_up_softmax_bn": ["pooling", "embedder", "neck"],
    "heated_up_softmax_bn_official": ["pooling", "embedder", "neck"],
    "grad_ml": ["pooling", "embedder", "unit_length"],
    "warped_softmax": ["pooling", "normalization", "embedder"],
    "warped_softmax_sop": ["pooling", "normalization", "embedder"],
    "proxy_nca_plus_plus": ["pooling", "normalization", "embedder"],
    "hist": ["pooling", "embedder", "normalization"],
}
WEIGHTS = {
    "sgsl_official": ["embedder.weight", "neck.weight"],
    "sgsl_paper": ["embedder.weight"],
    "normalized_softmax": ["embedder.weight"],
    "heated_up_softmax_bn_official": ["embedder.weight", "embedder.bias", "neck.bias"],
}


def test_every_preset_is_described_and_tested() -> None:
    assert set(HEAD_PRESETS) == set(EXPECTED) == set(CHILDREN)
    for text in HEAD_PRESETS.values():
        assert text.endswith(".")
        assert any(source in text for source in ("[paper", "[code", "[ours"))


@pytest.mark.parametrize("name", list(EXPECTED))
def test_forward(name: str) -> None:
    head = build_head(name, C, D).double()
    assert [child for child, _ in head.named_children()] == CHILDREN[name]
    names = WEIGHTS.get(name, ["embedder.weight", "embedder.bias"])
    assert [parameter for parameter, _ in head.named_parameters()] == names
    if name == "sgsl_official":
        head.neck.weight.data.uniform_(0.5, 2)
    if name == "heated_up_softmax_bn_official":
        head.neck.bias.data.uniform_(-1, 1)
    expected = EXPECTED[name](maps(), head.state_dict())
    assert expected.shape == (5, D)
    torch.testing.assert_close(head(maps()), expected)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_pooled_vectors_skip_the_pooling(name: str) -> None:
    head = build_head(name, C, D).double().eval()
    vectors = head.pooling(maps())
    torch.testing.assert_close(head(vectors), head(maps()))


@pytest.mark.parametrize("name", list(EXPECTED))
def test_every_parameter_and_map_gets_a_gradient(name: str) -> None:
    head, x = build_head(name, C, D).double(), maps().requires_grad_()
    (head(x) ** 3).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().max() > 0
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("name", ["sgsl_official", "sgsl_paper", "normalized_softmax"])
def test_no_layer_for_equal_widths(name: str) -> None:
    head = build_head(name, C, C)
    assert isinstance(head.embedder, nn.Identity)
    assert head(maps().float()).shape == (5, C)


@pytest.mark.parametrize(
    ("name", "std"),
    [
        ("sgsl_official", (2 / 256) ** 0.5),
        ("sgsl_paper", (2 / 256) ** 0.5),
        ("warped_softmax", (2 / 256) ** 0.5),
        ("hist", (2 / 256) ** 0.5),
        # U(+-1/sqrt(fan in)) has the standard deviation 1/sqrt(3 fan in).
        ("warped_softmax_sop", (3 * 512) ** -0.5),
        ("proxy_nca_plus_plus", (3 * 512) ** -0.5),
        ("normalized_softmax", (3 * 512) ** -0.5),
    ],
)
def test_initial_weights(name: str, std: float) -> None:
    torch.manual_seed(0)
    head = build_head(name, 512, 256)
    assert head.embedder.weight.std().item() == pytest.approx(std, rel=2e-2)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_copies_batches_of_one_and_compiling(name: str) -> None:
    head = build_head(name, C, D)
    twin = build_head(name, C, D)
    twin.load_state_dict(copy.deepcopy(head).state_dict(), strict=True)
    x = maps().float()
    compiled = torch.compile(twin, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), head(x))
    assert head.train()(x[:1]).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sgsl_offical", C, D), "preset must be one of 'sgsl_official'"),
        (("proxynca++", C, D), "preset must be one of 'sgsl_official'"),
        (("hist", 0, D), "in_channels"),
        (("hist", C, -1), "embedding_size"),
    ],
)
def test_arguments_are_checked(arguments: tuple[str, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_head(*arguments)
