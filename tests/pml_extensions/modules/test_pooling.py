"""Global poolings: against plain loops, and where powers leave the range of a dtype."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from torch import Tensor, nn

from pml_extensions.modules import (
    AveragePooling,
    GeneralizedMeanPooling,
    MaxAveragePooling,
    MaxPooling,
    TokenPooling,
)

POOLINGS = [AveragePooling, MaxPooling, MaxAveragePooling, GeneralizedMeanPooling]


def maps(seed: int = 0, size: tuple[int, ...] = (3, 4, 2, 5)) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def by_hand(x: Tensor, p: float, eps: float = 1e-6) -> Tensor:
    """Plain loops over samples, channels and positions."""
    result = []
    for sample in x.tolist():
        row = []
        for channel in sample:
            values = [max(value, eps) for line in channel for value in line]
            row.append((sum(value**p for value in values) / len(values)) ** (1 / p))
        result.append(row)
    return torch.tensor(result, dtype=torch.float64)


def signed_by_hand(x: Tensor, p: float) -> Tensor:
    result = []
    for sample in x.tolist():
        row = []
        for channel in sample:
            values = [value for line in channel for value in line]
            mean = sum(math.copysign(abs(v) ** p, v) for v in values) / len(values)
            row.append(math.copysign(abs(mean) ** (1 / p), mean))
        result.append(row)
    return torch.tensor(result, dtype=torch.float64)


def test_average_and_maximum() -> None:
    x = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[0.0, 0.0], [0.0, 4.0]]]])
    assert AveragePooling()(x).tolist() == [[3.0, 1.0]]
    assert MaxPooling()(x).tolist() == [[6.0, 4.0]]
    assert MaxAveragePooling()(x).tolist() == [[9.0, 5.0]]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_pass_and_other_shapes_are_refused(pooling: type[nn.Module]) -> None:
    vectors = maps(size=(3, 4))
    assert pooling()(vectors) is vectors
    with pytest.raises(ValueError, match=r"\(N, C, H, W\).*\(2, 3, 4\)"):
        pooling()(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match=r"\(2, 3, 0, 4\)"):
        pooling()(torch.zeros(2, 3, 0, 4))


def test_tokens_are_pooled_as_the_head_wants_them() -> None:
    tokens = maps(size=(2, 6, 4))
    assert torch.equal(TokenPooling()(tokens), tokens[:, 0])
    mean = TokenPooling(AveragePooling(), prefix=2)(tokens)
    torch.testing.assert_close(mean, tokens[:, 2:].mean(dim=1))
    largest = TokenPooling(MaxPooling())(tokens)
    assert torch.equal(largest, tokens[:, 1:].amax(dim=1))
    for pooling, wrong in ((None, maps()), (MaxPooling(), tokens[:, :1])):
        with pytest.raises(ValueError, match=r"takes tokens \(N, T, C\) with T > "):
            TokenPooling(pooling)(wrong)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, 7.3])
def test_gem_is_the_generalised_mean(p: float) -> None:
    x = maps()
    torch.testing.assert_close(GeneralizedMeanPooling(p)(x), by_hand(x, p))
    torch.testing.assert_close(GeneralizedMeanPooling(p, eps=0.3)(x), by_hand(x, p, 0.3))


def test_gem_lies_between_average_and_maximum() -> None:
    x = maps().abs() + 0.1
    torch.testing.assert_close(GeneralizedMeanPooling(1.0)(x), x.mean(dim=(2, 3)))
    torch.testing.assert_close(
        GeneralizedMeanPooling(2000.0)(x), x.amax(dim=(2, 3)), rtol=2e-3, atol=0
    )


@pytest.mark.parametrize("signed", [False, True])
def test_gem_gradient(signed: bool) -> None:
    pooling = GeneralizedMeanPooling(2.5, signed=signed)
    assert torch.autograd.gradcheck(pooling, (maps().requires_grad_(),))


def test_the_clamp_is_a_relu() -> None:
    x = torch.tensor([[[[-2.0, 3.0]]]], requires_grad=True)
    GeneralizedMeanPooling()(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0, 0, 0] == 0
    assert x.grad[0, 0, 0, 1] > 0


def test_signed_gem() -> None:
    x = maps(1)
    torch.testing.assert_close(GeneralizedMeanPooling(signed=True)(x), signed_by_hand(x, 3.0))
    positive = x.abs() + 0.1
    torch.testing.assert_close(
        GeneralizedMeanPooling(signed=True)(positive), GeneralizedMeanPooling()(positive)
    )
    torch.testing.assert_close(
        GeneralizedMeanPooling(signed=True)(-x), -GeneralizedMeanPooling(signed=True)(x)
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("values", [[0.0, 0.0], [1e-30, -1e-30], [2.0, -2.0], [-3.0, -4.0]])
def test_gem_is_finite_where_nothing_is_left(values: list[float], signed: bool) -> None:
    x = torch.tensor(values).reshape(1, 1, 1, 2).requires_grad_()
    result = GeneralizedMeanPooling(signed=signed)(x)
    result.sum().backward()
    assert result.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e15])
@pytest.mark.parametrize("p", [3.0, 40.0])
def test_no_power_leaves_the_range_of_float32(p: float, scale: float) -> None:
    x = (maps().abs() + 0.5).requires_grad_()
    y = (x.detach().float() * scale).requires_grad_()
    expected, actual = GeneralizedMeanPooling(p)(x), GeneralizedMeanPooling(p)(y)
    torch.testing.assert_close((actual / scale).double(), expected, rtol=1e-5, atol=0)
    expected.sum().backward()
    actual.sum().backward()
    torch.testing.assert_close(y.grad.double(), x.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gem_computes_low_precision_maps_in_float32(dtype: torch.dtype) -> None:
    # 300^3 is infinite in float16, and 1e-6 is a multiple of its smallest step.
    x = (maps().abs() * 300).to(dtype)
    pooled = GeneralizedMeanPooling()(x)
    assert pooled.dtype == dtype
    assert torch.equal(pooled, by_hand(x.double(), 3.0).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        full = GeneralizedMeanPooling()(x.float())
    assert full.dtype == torch.float32
    torch.testing.assert_close(full.double(), by_hand(x.double(), 3.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("signed", [False, True])
def test_learned_exponent(signed: bool) -> None:
    x = maps(2)
    pooling = GeneralizedMeanPooling(2.0, learn_p=True, signed=signed).double()
    assert [name for name, _ in pooling.named_parameters()] == ["p"]
    pooling(x).sum().backward()
    reference = signed_by_hand if signed else by_hand
    step = 1e-5
    difference = reference(x, 2.0 + step).sum() - reference(x, 2.0 - step).sum()
    torch.testing.assert_close(pooling.p.grad[0], difference / (2 * step), rtol=1e-6, atol=1e-8)
    assert not list(GeneralizedMeanPooling().parameters())


@pytest.mark.parametrize(
    ("kwargs", "words"), [({"p": 0}, "p must be"), ({"eps": -1}, "eps must"), ({"p": "3"}, "p='3'")]
)
def test_arguments_are_checked(kwargs: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GeneralizedMeanPooling(**kwargs)


@examples(30)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.sampled_from([False, True]))
def test_gem_is_homogeneous_and_blind_to_positions(seed: int, factor: float, signed: bool) -> None:
    pooling = GeneralizedMeanPooling(eps=1e-9, signed=signed)
    x = maps(seed)
    x = x if signed else x.abs() + 1e-3
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
    shuffled = x.flatten(2)[:, :, order].unflatten(2, (5, 2))
    torch.testing.assert_close(pooling(shuffled), pooling(x))
    torch.testing.assert_close(pooling(factor * x), factor * pooling(x))


def test_nan_is_not_hidden() -> None:
    for pooling in [module() for module in POOLINGS] + [GeneralizedMeanPooling(signed=True)]:
        assert pooling(torch.tensor([[[[math.nan, 1.0]]]])).isnan().all()


@pytest.mark.parametrize("kwargs", [{}, {"learn_p": True}, {"signed": True}])
def test_gem_compiles_without_graph_breaks(kwargs: dict[str, bool]) -> None:
    pooling, x = GeneralizedMeanPooling(**kwargs), maps().float()
    compiled = torch.compile(pooling, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), pooling(x))
