"""Unit vectors for evaluation, where no gradient is needed."""

from __future__ import annotations

import torch
from torch import Tensor

from pml_extensions._shared.numerics import unit_vectors


@torch.no_grad()
def directions(x: Tensor) -> Tensor:
    """Scale the rows of ``x`` to unit length, however short or long they are, without gradient.

    :func:`unit_vectors`, which has a stable gradient, treats rows shorter than 1e-6 as zero, and
    the squares of values above 1e19 overflow in float32. Here rows are first scaled by powers of
    two; for all other rows the result is bit-identical to that of :func:`unit_vectors`.

    Args:
        x: Vectors, shape (..., D), float32 or float64; finite.

    Returns:
        Vectors of the same shape; a row of zeros stays zero.
    """
    # On a CPU this is several times as fast as vector_norm with ord=inf.
    largest = x.abs().amax(dim=-1, keepdim=True)
    # Clamped so that the factor below is neither denormal nor infinite.
    largest = largest.clamp(torch.finfo(x.dtype).tiny, torch.finfo(x.dtype).max / 8)
    # The factor is a power of two.
    return unit_vectors(x * (largest.frexp().mantissa / largest))
