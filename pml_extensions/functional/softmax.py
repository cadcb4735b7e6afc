"""Cross-entropies and log-sum-exps over classes."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

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


def cross_entropy(logits: Tensor, labels: Tensor, own: float = 1.0, other: float = 0.0) -> Tensor:
    """Return the cross-entropy of each sample, with ``own`` and ``other`` as target probabilities.

    Unlike ``torch.nn.functional.cross_entropy`` no label is special: -100 is out of range here.

    Args:
        logits: Shape (N, C).
        labels: Shape (N,), values 0..C-1.
        own: Target probability of the labelled class.
        other: Target probability of each other class.

    Returns:
        Losses, shape (N,).
    """
    log_probabilities = F.log_softmax(logits, dim=1)
    losses = -log_probabilities.gather(1, labels.unsqueeze(1)).squeeze(1) * (own - other)
    if other > 0:
        losses = losses - other * log_probabilities.sum(dim=1)
    return losses


def logsumexp_without_own_class(
    similarities: Tensor, labels: Tensor, gamma: Tensor | float
) -> Tensor:
    """Return ``(1/gamma) ln sum_{j != y_i} exp(gamma s_ij)``, a soft maximum of the other classes.

    Args:
        similarities: Shape (N, C).
        labels: Shape (N,), values 0..C-1.
        gamma: Sharpness; the maximum is reached as gamma grows.

    Returns:
        Shape (N,); minus infinity where there is no other class.
    """
    others = (gamma * similarities).scatter(1, labels.unsqueeze(1), -torch.inf)
    return torch.logsumexp(others, dim=1) / gamma
