"""Euclidean distances and unit vectors with finite gradients at coincident points and zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pml_extensions.functional.precision import without_autocast

# Squared distances below this part of the squared lengths count as zero in a float64 expansion.
COINCIDENT = 1e-14
# A shorter vector counts as zero: its direction is rounding noise and the Jacobian 1/|x| explodes.
SHORTEST_VECTOR = 1e-6


def unit_vectors(x: Tensor) -> Tensor:
    """Return the rows of ``x`` at unit length; a zero row stays zero and gets zero gradient.

    Args:
        x: Vectors, shape (..., D), float32 or float64.

    Returns:
        Vectors of the same shape.
    """
    squared = x.square().sum(dim=-1, keepdim=True)
    has_direction = squared > SHORTEST_VECTOR**2
    inverse_norm = squared.where(has_direction, torch.ones_like(squared)).rsqrt()
    # A product, not a selection, so that a NaN row stays visible in the loss.
    return x * (inverse_norm * has_direction)


@torch.no_grad()
def directions(x: Tensor) -> Tensor:
    """Return the rows of ``x`` at unit length whatever theirs is, for an evaluation: no gradient.

    :func:`unit_vectors` takes a row shorter than 1e-6 for one without direction, as a gradient
    needs it, and squares overflow in float32 above 1e19. Rows are scaled by powers of two before,
    so that all others come out bit by bit as there.

    Args:
        x: Vectors, shape (..., D), float32 or float64; finite.

    Returns:
        Vectors of the same shape; a row of zeros stays one.
    """
    # On a CPU several times as fast as a norm of order infinity.
    largest = x.abs().amax(dim=-1, keepdim=True)
    # Within these the factor is a normal number, too.
    largest = largest.clamp(torch.finfo(x.dtype).tiny, torch.finfo(x.dtype).max / 8)
    return unit_vectors(x * (largest.frexp().mantissa / largest))


def paired_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_i|`` by direct difference, with zero gradient where both coincide.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (N, D).

    Returns:
        Distances, shape (N,).
    """
    return root((x - y).square().sum(dim=-1))


def root(squared: Tensor) -> Tensor:
    """Return the distances of squared ones, with zero gradient where these are zero."""
    coincide = squared == 0
    return squared.masked_fill(coincide, 1.0).sqrt().masked_fill(coincide, 0.0)


def per_distance(grad: Tensor, distances: Tensor) -> Tensor:
    """Return a gradient over its distances; zero where points coincide, even if it is infinite."""
    coincide = distances == 0
    return (grad / distances.masked_fill(coincide, 1.0)).masked_fill(coincide, 0.0)


def pairwise_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return ``|x_i - y_j|`` to the digits of its dtype, with zero gradient where both coincide.

    The usual expansion xx + yy - 2xy loses most digits for close points far from the origin
    (17 % error at separation 0.1 and norm 64 in float32), and all of them under TF32. Here float32
    vectors on a CPU are expanded in float64, which keeps them, at a tenth of the time of direct
    differences; these serve elsewhere.

    Args:
        x: Vectors, shape (N, D).
        y: Vectors, shape (M, D).

    Returns:
        Distances, shape (N, M).
    """
    distances: Tensor = _PairwiseDistances.apply(x, y)
    return distances


class _PairwiseDistances(torch.autograd.Function):
    """``torch.cdist`` without loss of digits, whose backward is two matrix products.

    cdist's own backward takes N*M*D memory on CUDA.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == torch.float32 and x.device.type == "cpu":
            distances = _expanded_in_float64(x, y)
        else:
            distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        ctx.save_for_backward(x, y, distances)
        return distances

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (grad,) = grad_outputs
        x, y, distances = ctx.saved_tensors
        grad_x = grad_y = None
        with without_autocast(x):
            per_length = per_distance(grad, distances)
            if ctx.needs_input_grad[0]:
                grad_x = per_length.sum(dim=1, keepdim=True) * x - per_length @ y
            if ctx.needs_input_grad[1]:
                grad_y = per_length.sum(dim=0).unsqueeze(1) * y - per_length.t() @ x
        return grad_x, grad_y


def _expanded_in_float64(x: Tensor, y: Tensor) -> Tensor:
    wide_x, wide_y = x.double(), y.double()
    lengths = (wide_x.square().sum(dim=1, keepdim=True), wide_y.square().sum(dim=1))
    squared = torch.addmm(lengths[1], wide_x, wide_y.t(), alpha=-2).add_(lengths[0])
    return squared.masked_fill_(squared < COINCIDENT * lengths[0], 0.0).sqrt_().to(x.dtype)
