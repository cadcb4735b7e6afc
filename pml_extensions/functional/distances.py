"""Directions of vectors, for evaluations."""

from __future__ import annotations

import torch
from torch import Tensor

from pml_extensions._shared.numerics import unit_vectors


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
