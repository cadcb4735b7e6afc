"""Exact gradients of the softmax of single samples, and which samples to show."""

from __future__ import annotations

import torch
from torch import Tensor

#: Shares of the hard and of the easy samples, ordered by margin, at which one is shown.
QUANTILES = (0.1, 0.5, 0.9)


def normalized_gradients(
    normalized: Tensor, weights: Tensor, labels: Tensor, alphas: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradients of the softmax over scaled cosines (Heated-Up Softmax, Eq. 3, and Eq. 5).

    Args:
        units: Unit embeddings, shape (N, D).
        weights: Unit class weights, shape (C, D).
        labels: Shape (N,).
        alphas: Scales of the cosines, shape (A,).

    Returns:
        Lengths of the gradient with respect to the unit embedding, as the equation has it, and of
        its part along the sphere, which is what reaches an embedding of length 1. Both (A, N).
    """
    errors = _errors(alphas[:, None, None] * (normalized @ weights.t()), labels)
    gradients = alphas[:, None, None] * (errors @ weights)
    along = (gradients * normalized).sum(dim=-1, keepdim=True) * normalized
    return gradients.norm(dim=-1), (gradients - along).norm(dim=-1)


def linear_gradients(
    normalized: Tensor, weights: Tensor, bias: Tensor, labels: Tensor, norms: Tensor
) -> Tensor:
    """Return the length of the gradient of a plain softmax with respect to the embedding.

    Args:
        units: Directions of the embeddings, shape (N, D).
        weights: Class weights W, not normalised, shape (C, D).
        bias: Shape (C,).
        labels: Shape (N,).
        norms: Lengths that the embeddings are given, shape (L,).

    Returns:
        |dl/df| = |sum_m (p_m - q_m) w_m|, shape (L, N).
    """
    logits = norms[:, None, None] * (normalized @ weights.t()) + bias
    return (_errors(logits, labels) @ weights).norm(dim=-1)


def hard_and_easy(logits: Tensor, labels: Tensor) -> tuple[list[int], list[int]]:
    """Return three samples that a classifier gets wrong and three that it gets right.

    Samples are ordered by their margin, the logit of the own class less the largest other one, and
    taken at :data:`QUANTILES` of each group.

    Args:
        logits: Shape (N, C).
        labels: Shape (N,).

    Returns:
        Positions of the hard samples (margin 0 or less) and of the easy ones, by rising margin;
        fewer where a group is smaller.
    """
    own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    others = logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(dim=1)
    margins = own - others
    order = margins.argsort(stable=True)
    hard = order[margins[order] <= 0]
    return _at_quantiles(hard), _at_quantiles(order[len(hard) :])


def _at_quantiles(order: Tensor) -> list[int]:
    positions = {int(q * (len(order) - 1)) for q in QUANTILES} if len(order) else set()
    return [int(order[position]) for position in sorted(positions)]


def _errors(logits: Tensor, labels: Tensor) -> Tensor:
    """p - q: probabilities less the one-hot target, accurate where p of the own class is near 1."""
    p = logits.softmax(dim=-1)
    index = labels.expand(logits.shape[:-1]).unsqueeze(-1)
    others = p.scatter(-1, index, 0.0)
    return others.scatter(-1, index, -others.sum(dim=-1, keepdim=True))
