"""The warps of Table III and their slopes."""

from __future__ import annotations

import pytest
import torch

from pml_extensions.functional import Piecewise, Power, Scaled, Warp


def slope(warp: Warp, distance: torch.Tensor) -> torch.Tensor:
    """What the gradient sees of a warp."""
    t = distance.clone().requires_grad_()
    return torch.autograd.grad(warp(t).sum(), t)[0]


T = torch.tensor([0.0, 0.5, 1.0, 2.0, 7.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("warp", "values", "slopes"),
    [
        (Power(1), T, torch.ones(5)),
        (Power(2), T**2, 2 * T),
        (Power(1.5), T**1.5, 1.5 * T**0.5),
        (Scaled(0.97), 0.97 * T, torch.full((5,), 0.97)),
        # Inside alpha the slope is k1 although the value is t (m = 1); outside it is k2.
        (
            Piecewise(1.0, 0.3, 1.5),
            torch.tensor([0, 0.5, 1.0, 2.5, 10.0]),
            torch.tensor([0.3, 0.3, 1.5, 1.5, 1.5]),
        ),
    ],
    ids=repr,
)
def test_values_and_slopes(warp: Warp, values: torch.Tensor, slopes: torch.Tensor) -> None:
    torch.testing.assert_close(warp(T), values.double())
    torch.testing.assert_close(slope(warp, T), slopes.double())


def test_the_root_has_no_slope_at_zero() -> None:
    root = Power(0.5)
    torch.testing.assert_close(root(T), T.sqrt())
    expected = torch.cat((torch.zeros(1, dtype=torch.float64), 0.5 / T[1:].sqrt()))
    torch.testing.assert_close(slope(root, T), expected)


def test_a_warp_that_hides_a_part_from_the_gradient_has_no_second_derivative() -> None:
    def second(warp: Warp) -> torch.Tensor:
        t = torch.tensor([0.5, 3.0], requires_grad=True)
        (grad,) = torch.autograd.grad(warp(t).square().sum(), t, create_graph=True)
        return torch.autograd.grad(grad.sum(), t)[0]

    with pytest.raises(RuntimeError, match="delta_multiplier=0 or k1=1 has one"):
        second(Piecewise(2.0, 0.5, 1.5))
    torch.testing.assert_close(second(Piecewise(2.0, 0.5, 1.5, 0)), torch.tensor([0.5, 4.5]))
