"""Distances and unit vectors: values, gradients, and the points where formulas break."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pml_extensions.functional import (
    directions,
    paired_distances,
    pairwise_distances,
    unit_vectors,
)


def random(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=generator, dtype=torch.float64).requires_grad_()


def test_pairwise_distances() -> None:
    x, y = random(4, 0), random(6, 1)
    torch.testing.assert_close(pairwise_distances(x, y), (x[:, None] - y).norm(dim=-1))
    assert torch.autograd.gradcheck(pairwise_distances, (x, y))
    assert torch.autograd.gradgradcheck(pairwise_distances, (x, y))
    assert torch.autograd.gradcheck(lambda x: pairwise_distances(x, y.detach()), (x,))
    assert torch.autograd.gradcheck(lambda y: pairwise_distances(x.detach(), y), (y,))


def test_paired_distances() -> None:
    x, y = random(4, 0), random(4, 1)
    torch.testing.assert_close(paired_distances(x, y), (x - y).norm(dim=-1))
    assert torch.autograd.gradcheck(paired_distances, (x, y))


def test_coincident_points_have_zero_gradient() -> None:
    x = random(3, 2)
    pairwise_distances(x, x.detach()).diagonal().sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()
    paired_distances(x, x.detach()).sum().backward()
    assert (x.grad == 0).all()


def test_pairwise_distances_in_float32_keep_close_points_apart() -> None:
    x = torch.full((1, 512), 64.0)
    y = x.clone()
    y[0, 0] += 2**-7
    assert pairwise_distances(x, y).item() == 2**-7
    expanded = (x.square().sum() + y.square().sum() - 2 * (x @ y.t())).clamp(min=0).sqrt()
    assert expanded.item() != pytest.approx(2**-7, rel=0.5)


@pytest.mark.parametrize("separation", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("size", [2, 512])
def test_pairwise_distances_in_float32_at_any_separation(separation: float, size: int) -> None:
    generator = torch.Generator().manual_seed(4)
    x = F.normalize(torch.randn(9, size, generator=generator))
    # Neighbours of x, and x itself.
    y = torch.cat([x + separation * F.normalize(torch.randn(9, size, generator=generator)), x])
    expected = (x.double()[:, None] - y.double()).norm(dim=-1)
    distances = pairwise_distances(x, y)
    torch.testing.assert_close(distances.double(), expected, rtol=1e-3, atol=2e-7)
    assert (distances[:, 9:].diagonal() == 0).all()


def test_unit_vectors() -> None:
    x = random(5, 3)
    torch.testing.assert_close(unit_vectors(x), F.normalize(x))
    assert torch.autograd.gradcheck(unit_vectors, (x,))
    assert torch.autograd.gradgradcheck(unit_vectors, (x,))


def test_a_gradient_penalty_through_unit_vectors() -> None:
    """The gradient that comes in is a constant: ``once_differentiable`` would not see it."""
    x, weight = random(5, 3), random(5, 4).detach()

    def derivatives(normalize: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        (grad,) = torch.autograd.grad((normalize(x) * weight).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), x)
        (per_row,) = torch.func.vmap(torch.func.grad(lambda x, w: normalize(x) @ w, argnums=(0,)))(
            x, weight
        )
        return grad, second, per_row

    torch.testing.assert_close(
        derivatives(unit_vectors), derivatives(lambda x: F.normalize(x, dim=-1))
    )


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-8])
def test_vectors_without_direction_are_zero(length: float) -> None:
    x = torch.full((2, 3), length, requires_grad=True)
    result = unit_vectors(x)
    (grad,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), x)
    assert all((zero == 0).all() for zero in (result, grad, second))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 3, 512])
def test_directions_do_not_depend_on_the_length(dtype: torch.dtype, size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(200, size, generator=generator, dtype=dtype)
    expected = unit_vectors(x)
    for exponent in (-60, -1, 0, 7, 66):
        torch.testing.assert_close(directions(x * 2.0**exponent), expected, rtol=0, atol=0)
    limits = torch.finfo(dtype)
    ends = torch.tensor([[limits.max, limits.max], [limits.tiny, 0], [0, 0]], dtype=dtype)
    expected = torch.tensor([[0.5**0.5, 0.5**0.5], [1, 0], [0, 0]], dtype=dtype)
    torch.testing.assert_close(directions(ends), expected)


def test_an_infinite_gradient_at_a_coincident_point_is_zero() -> None:
    x = random(3, 2)
    pairwise_distances(x, x.detach()).sqrt().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_nan_is_not_hidden() -> None:
    x = torch.tensor([[torch.nan, 1.0], [0.0, 1.0]])
    assert pairwise_distances(x, x).isnan().tolist() == [[True, True], [True, False]]
    assert unit_vectors(torch.tensor([[torch.nan, 1.0]])).isnan().any()
