"""Random subsets of classes that are the same on every device and every rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_INT64_MAX = 0x7FFFFFFFFFFFFFFF


def presence(labels: Tensor, num_classes: int) -> Tensor:
    """Return a uint8 mask of the classes that occur in ``labels``, shape (num_classes,)."""
    present = torch.zeros(num_classes, dtype=torch.uint8, device=labels.device)
    return present.index_fill_(0, labels, 1)


def sample_classes(present: Tensor, num_kept: int, seed: Tensor, draw: Tensor) -> Tensor:
    """Return all present classes and a uniform random choice of the others.

    Each class gets a pseudo-random number computed from (seed, draw, class), and the largest are
    kept. So there is no generator state, and equal arguments give equal choices on all devices.

    Args:
        present: Result of :func:`presence`, shape (C,).
        num_kept: Number of classes to keep, at least the number of present classes and at most C.
        seed: Scalar int64.
        draw: Number of this draw, scalar int64.

    Returns:
        Classes in ascending order, int64, shape (num_kept,).
    """
    classes = torch.arange(len(present), device=present.device)
    key = _hashed(_hashed(seed.to(classes.device) + 1) + draw.to(classes.device))
    numbers = _hashed(classes + key) & _INT64_MAX  # clears the sign bit
    # The largest number ensures that a present class is kept.
    numbers = torch.where(present.bool(), _INT64_MAX, numbers)
    return numbers.topk(num_kept, sorted=False).indices.sort().values


def _hashed(x: Tensor) -> Tensor:
    """Hash int64 numbers with the finaliser of SplitMix64."""
    x = x + -0x61C8864680B583EB  # the golden ratio; all three are 64 bits in two's complement
    x = (x ^ _shifted(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift ``x`` to the right, filling with zeros (torch fills with the sign bit)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def gather_rows(parameter: Tensor, rows: Tensor, sparse: bool = False) -> Tensor:
    """Return ``parameter[rows]`` with a dense or a sparse gradient.

    Args:
        parameter: Shape (C, ...).
        rows: Distinct row numbers in ascending order, shape (K,).
        sparse: Whether the gradient is a sparse COO tensor of these rows, for SGD without weight
            decay, SparseAdam or Adagrad.

    Returns:
        Shape (K, ...).
    """
    gathered: Tensor = _GatherRows.apply(parameter, rows, sparse)
    return gathered


class _GatherRows(torch.autograd.Function):
    """Gathers distinct rows, so that the backward pass can write instead of add."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, rows: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape, ctx.sparse = parameter.shape, sparse
        return parameter.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (rows,), (grad,) = ctx.saved_tensors, grads
        if ctx.sparse:
            indices = rows.unsqueeze(0)
            sparse = torch.sparse_coo_tensor(indices, grad, ctx.shape, check_invariants=False)
            return sparse, None, None
        return grad.new_zeros(ctx.shape).index_copy_(0, rows, grad), None, None
