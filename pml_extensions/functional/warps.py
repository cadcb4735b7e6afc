"""Elementwise warps of a Euclidean distance.

From "Realigned Softmax Warping for Deep Metric Learning", Table III and Eq. 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pml_extensions._shared.numerics import Fused

#: Any differentiable elementwise function of distances.
Warp = Callable[[Tensor], Tensor]


def warp_own_distance(
    distance: Tensor,
    alpha: Tensor | float,
    k1: Tensor | float,
    k2: Tensor | float,
    delta_multiplier: Tensor | float,
) -> Tensor:
    r"""Warp the distance to the own class (Eq. 7 of the paper).

    .. math::
        f_1(t) = k_1 t + m \Delta \;\; (t < \alpha), \qquad
        f_1(t) = k_2 t + (1 - k_2) \alpha \;\; (t \ge \alpha)

    :math:`\Delta = (1 - k_1) t` carries no gradient: inside alpha with m = 1 the value is t, and
    only the pull towards the proxy is scaled by k1. So, by design, the gradient there is not the
    derivative of the value, and finite differences disagree with it. Second derivatives raise
    RuntimeError unless :math:`m (1 - k_1)` is 0, because they would be wrong too.

    Args:
        distance: Distances t to the own proxy, any shape.
        alpha: Distance at which the warp changes.
        k1: Slope inside alpha.
        k2: Slope outside alpha.
        delta_multiplier: m, weight of the gradient-free part inside alpha.

    Returns:
        Warped distances, shape of ``distance``.
    """
    fixed = distance.detach()
    if delta_multiplier * (1 - k1) != 0:
        distance = _DifferentiableOnce.apply(distance)[0]  # second derivatives would be wrong
    inside = k1 * distance + delta_multiplier * (1 - k1) * fixed
    outside = k2 * distance + (1 - k2) * alpha
    return torch.where(fixed < alpha, inside, outside)


class _DifferentiableOnce(Fused):
    """Identity that refuses second derivatives; ``once_differentiable`` has a vaguer error."""

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor]:
        return (x.view_as(x),)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        # With create_graph=True, differentiating the gradient raises an error.
        return (_Refusal.apply(*grads) if torch.is_grad_enabled() else grads)[0]


class _Refusal(_DifferentiableOnce):
    """Identity whose backward pass raises an error."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise RuntimeError(
            "the gradient of this warp is by design not the derivative of its value, so it has no "
            "second derivative; delta_multiplier=0 or k1=1 has one."
        )


class Power:
    """The power t^exponent of a distance t, with zero gradient at t = 0.

    For exponents below 1 the slope at 0 is infinite.

    Args:
        exponent: The paper's Table III uses 1 (the plain softmax), 2, 1/2 and 3/2.
    """

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the warped distances."""
        if self.exponent == 1:
            return distance
        # Replaced by 1 before the power, whose derivative at 0 may be infinite.
        zero = distance == 0
        return distance.masked_fill(zero, 1.0).pow(self.exponent).masked_fill(zero, 0.0)

    def __repr__(self) -> str:
        return f"Power({self.exponent})"


class Scaled:
    """The multiple c t of a distance t; Table III warps the own distance by c = 0.97, 0.5, 1.1, 2.

    If c is below 1 and only the own distance is scaled, distances grow without bound.

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
    """The paper's warp, :func:`warp_own_distance`, with fixed parameters.

    Args:
        alpha: Distance at which the warp changes.
        k1: Slope inside alpha.
        k2: Slope outside alpha.
        delta_multiplier: m, weight of the gradient-free part inside alpha.
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
