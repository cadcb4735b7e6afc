"""Batch normalisation of vectors that accepts a batch of one sample."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_normalized(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalise ``x`` with batch statistics in training, and with running statistics otherwise.

    A training batch of fewer than two vectors has no variance, so it is normalised with the running
    statistics too and does not update them.

    Args:
        x: Shape (N, D).
        running_mean: Shape (D,), of any dtype; updated in training.
        running_var: Shape (D,), unbiased; updated in training.
        training: Whether to use the statistics of this batch.
        momentum: Weight of a new batch in the running statistics; 0 does not update them.
        eps: Added to the variance.

    Returns:
        Shape (N, D), without scale and shift.
    """
    if not training or len(x) < 2:
        return (x - running_mean.to(x)) * (running_var.to(x) + eps).rsqrt()
    if momentum > 0:
        _update_running_statistics(running_mean, running_var, x.detach(), momentum)
    # Without running statistics, which are updated above.
    return F.batch_norm(x, None, None, training=True, eps=eps)


@torch.no_grad()
def _update_running_statistics(
    running_mean: Tensor, running_var: Tensor, x: Tensor, momentum: float
) -> None:
    var, mean = torch.var_mean(x, dim=0)
    running_mean.lerp_(mean.to(running_mean), momentum)
    running_var.lerp_(var.to(running_var), momentum)
