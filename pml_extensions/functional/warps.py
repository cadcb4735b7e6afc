"""Functions that warp a Euclidean distance, element by element (paper 004, Table III and Eq. 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pml_extensions._shared.numerics import Fused

#: Any function of distances, element by element, that autograd can follow.
Warp = Callable[[Tensor], Tensor]


def warp_own_distance(
    distance: Tensor,
    alpha: Tensor | float,
    k1: Tensor | float,
    k2: Tensor | float,
    delta_multiplier: Tensor | float,
) -> Tensor:
    r"""Return the warped distance to the own class (Eq. 7 of the paper).

    .. math::
        f_1(t) = k_1 t + m \Delta \;\; (t < \alpha), \qquad
        f_1(t) = k_2 t + (1 - k_2) \alpha \;\; (t \ge \alpha)

    :math:`\Delta = (1 - k_1) t` carries no gradient: inside alpha with m = 1 the value is t, and
    only the pull towards the proxy is scaled by k1. So finite differences of the value disagree
    with the gradient there, by design, and to differentiate that gradient raises RuntimeError
    (unless :math:`m (1 - k_1)` is 0): with :math:`\Delta` a constant the result would not be the
    derivative of the gradient either.

    Args:
        distance: Distances t to the own proxy, any shape.
        alpha: Distance at which the warp changes.
        k1: Slope inside.
        k2: Slope outside.
        delta_multiplier: m.

    Returns:
        Warped distances, shape of ``distance``.
    """
    fixed = distance.detach()
    if delta_multiplier * (1 - k1) != 0:
        distance = _DifferentiableOnce.apply(distance)[0]
    inside = k1 * distance + delta_multiplier * (1 - k1) * fixed
    outside = k2 * distance + (1 - k2) * alpha
    return torch.where(fixed < alpha, inside, outside)


class _DifferentiableOnce(Fused):
    """The identity. ``once_differentiable`` does the same, but its error names no way out."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor]:
        return (x.view_as(x),)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return (_Refusal.apply(*grads) if torch.is_grad_enabled() else grads)[0]


class _Refusal(_DifferentiableOnce):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise RuntimeError(
            "the gradient of this warp is by design not the derivative of its value, so it has no "
            "second derivative; delta_multiplier=0 or k1=1 has one."
        )


class Power:
    """t^exponent, with zero gradient at 0 where its slope is infinite (exponent below 1).

    Args:
        exponent: Table III of the paper has 1 (the plain softmax), 2, 1/2 and 3/2.
    """

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the warped distances."""
        if self.exponent == 1:
            return distance
        zero = distance == 0
        return distance.masked_fill(zero, 1.0).pow(self.exponent).masked_fill(zero, 0.0)

    def __repr__(self) -> str:
        return f"Power({self.exponent})"


class Scaled:
    """c t: a half-warp if the own distance alone gets it (Table III has c = 0.97, 0.5, 1.1 and 2).

    With c below 1 on the own distance alone the distances grow without bound.

    Args:
        factor: c.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the warped distances."""
        return self.factor * distance

    def __repr__(self) -> str:
        return f"Scaled({self.factor})"


class Piecewise:
    """The paper's own warp, :func:`warp_own_distance`, with its values fixed.

    Args:
        alpha: Distance at which the warp changes.
        k1: Slope inside.
        k2: Slope outside.
        delta_multiplier: m, weight of the gradient-free part inside.
    """

    def __init__(self, alpha: float, k1: float, k2: float, delta_multiplier: float = 1.0) -> None:
        self.alpha = alpha
        self.k1 = k1
        self.k2 = k2
        self.delta_multiplier = delta_multiplier

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the warped distances."""
        return warp_own_distance(distance, self.alpha, self.k1, self.k2, self.delta_multiplier)

    def __repr__(self) -> str:
        return f"Piecewise({self.alpha}, {self.k1}, {self.k2}, {self.delta_multiplier})"
