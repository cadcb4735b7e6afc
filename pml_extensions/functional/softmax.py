"""Cross-entropies from the logit of the own class and the log-sum-exp of the others."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

#: A term e^this of a softmax, 2e-35, changes no sum, yet is no denormal number in float32.
NEGLIGIBLE = -80.0

SmoothingConvention = Literal["official", "torch"]


def smoothing_weights(
    num_classes: int, label_smoothing: float, convention: SmoothingConvention
) -> tuple[float, float]:
    """Return the target probability of the own class and of each other class.

    Args:
        num_classes: Number of classes C.
        label_smoothing: Probability eps taken from the own class.
        convention: ``"official"`` gives eps/(C-1) to each other class; ``"torch"`` spreads eps
            over all classes, the own one included.

    Returns:
        The two probabilities; with one class there is nothing to smooth: (1, 0).
    """
    if num_classes == 1:
        return 1.0, 0.0
    if convention == "official":
        return 1.0 - label_smoothing, label_smoothing / (num_classes - 1)
    other = label_smoothing / num_classes
    return 1.0 - label_smoothing + other, other


def logsumexp(x: Tensor) -> Tensor:
    """Return ``ln sum_j e^{x_ij}`` over the second dimension, minus infinity of nothing.

    Not torch's: on a CPU that is ten times slower where terms become denormal numbers, as they do
    for most classes of a well-trained softmax.

    Args:
        x: Shape (N, C); minus infinity counts for nothing.

    Returns:
        Shape (N,), without gradient.
    """
    top, log_sum = logsumexp_parts(x)
    return top + log_sum


def logsumexp_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two summands of :func:`logsumexp`: the largest, and the logarithm of a sum.

    The sum of both has lost the digits of the second where the first is large.

    Args:
        x: Shape (N, C); minus infinity counts for nothing.

    Returns:
        Both of shape (N,), without gradient. Of nothing, the first is minus infinity and the
        second finite.
    """
    top = x.amax(dim=1, keepdim=True)
    empty = top == -torch.inf
    terms = (x - top.masked_fill(empty, 0.0)).clamp_(min=NEGLIGIBLE).exp_()
    return top.squeeze(1), terms.sum(dim=1).log_()


def softplus(x: Tensor) -> Tensor:
    """Return ``ln(1 + e^x)`` to the last digit; torch's own is linear above 20."""
    return -F.logsigmoid(-x)


def cross_entropy(own: Tensor, others: Tensor) -> Tensor:
    """Return ``-ln(e^own / (e^own + e^others))``, the softmax cross-entropy of each sample.

    Args:
        own: Logit of the own class, shape (N,).
        others: Log-sum-exp of the logits of the other classes, shape (N,).

    Returns:
        Losses, shape (N,), accurate near 0 as well; 0 where there is no other class.
    """
    return softplus(others - own)


def smoothed_cross_entropy(
    own: Tensor, others: Tensor, total: Tensor, own_target: float, other_target: float
) -> Tensor:
    """Return the cross-entropy of each sample against smoothed labels.

    Args:
        own: Logit of the own class, shape (N,).
        others: Log-sum-exp of the logits of the other classes, shape (N,).
        total: Sum of the logits of all classes, shape (N,).
        own_target: Target probability of the own class, see :func:`smoothing_weights`.
        other_target: Target probability of each other class.

    Returns:
        Losses, shape (N,).
    """
    # ln sum_j e^{z_j} = z_y + softplus(others - z_y), less the mean logit under the target.
    return cross_entropy(own, others) + (1 - own_target + other_target) * own - other_target * total
