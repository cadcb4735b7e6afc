"""Quadruples and pairs of a batch, and the distances in them, for :class:`GradMLLoss`.

A quadruple (x1, x2, y1, y2) consists of two samples of each of two classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .numerics import (
    Fused,
    paired_distances,
    pairwise_distances,
    second_derivatives_from,
    squared_lengths,
)


class QuadrupleMeans(NamedTuple):
    """Result of :func:`all_quadruples`, with one entry for each of P pairs of classes (A, B).

    Attributes:
        within: Mean of :math:`|x_1-x_2|^k + |y_1-y_2|^k` over all quadruples, shape (P,).
        between: Mean of :math:`|x_i-y_j|^k` over all quadruples, shape (P,).
        first: Index of the first sample of A, shape (P,).
        exists: Whether there is any quadruple, shape (). If not, there is one entry of zeros.
        num_used: Number of samples that are in a quadruple, shape ().
    """

    within: Tensor
    between: Tensor
    first: Tensor
    exists: Tensor
    num_used: Tensor


def disjoint_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return quadruples (x1, x2, y1, y2) that use each sample of the batch at most once.

    Classes are in order of first appearance. Round r takes the r-th pair of samples of every class
    that has one, and joins every two consecutive pairs to a quadruple; a last single pair is left
    out. One synchronisation with the device of ``labels`` is needed, for the number of quadruples.

    Args:
        labels: Shape (N,), N at least 4.

    Returns:
        Indices into the batch of shape (Q, 4), round by round, and whether there is any quadruple,
        shape (). If there is none, Q is 1 and the indices are arbitrary.
    """
    order, is_end = _ordered_by_quadruple(labels)
    end_positions, exists = _nonzero(is_end, at_least=1)
    return _quadruples_ending_at(end_positions, order), exists


def padded_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the quadruples of :func:`disjoint_quadruples`, padded to a fixed shape.

    The shape does not depend on values, so no synchronisation with the device is needed.

    Args:
        labels: Shape (N,), N at least 4.

    Returns:
        Indices into the batch of shape (N // 4, 4), padded with the first quadruple, and the number
        of quadruples, shape (). If it is 0, all indices are arbitrary.
    """
    order, is_end = _ordered_by_quadruple(labels)
    # Sorting False before True gives the positions of all ends, and then others to be replaced.
    end_positions = (~is_end).to(torch.uint8).argsort(stable=True)[: len(labels) // 4]
    end_positions = torch.where(is_end[end_positions], end_positions, end_positions[0])
    return _quadruples_ending_at(end_positions, order), is_end.sum()


def _ordered_by_quadruple(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order of the samples in which the four of a quadruple follow each other.

    Returns:
        Indices into the batch, and whether a quadruple ends at each of them, both of shape (N,).
    """
    n = len(labels)
    # First sample of each sample's class, and rank among the samples of the class.
    first, rank, class_size = _class_positions(labels)
    # A round takes two samples of each class. Samples without a partner get round n, the last.
    rounds = torch.where(rank // 2 < class_size // 2, rank // 2, n)
    # By round, then by class (named by its first sample); the stable sort keeps pairs in order.
    order = (rounds * n + first).argsort(stable=True)
    rounds = rounds[order]
    # The samples of a round are now in pairs, so every fourth of them completes a quadruple.
    return order, (_rank_in_run(rounds) % 4 == 3) & (rounds < n)


def _quadruples_ending_at(end_positions: Tensor, order: Tensor) -> Tensor:
    """Return the quadruples whose last samples are at these positions of ``order``."""
    # Only an arbitrary position, for lack of a quadruple, can be below 3.
    return order[
        (end_positions - 3).clamp(min=0).unsqueeze(1) + torch.arange(4, device=order.device)
    ]


def all_quadruples(x: Tensor, labels: Tensor, k: float) -> QuadrupleMeans:
    r"""Average powers of distances over all quadruples of each pair of classes.

    Classes are in order of first appearance, without classes of a single sample. A mean over
    quadruples is a mean over pairs of samples. For k = 2 the mean within class a is
    :math:`2 v_a n_a / (n_a - 1)` and the mean between a and b is :math:`v_a + v_b + |m_a - m_b|^2`,
    where n is the number of samples, m the mean and v the mean squared deviation, so no matrix over
    samples is needed. Other powers need an N x N matrix. TF32, if allowed, costs precision only in
    the product of class means. One synchronisation with the device is needed, for the number of
    classes.
    """
    first, rank, class_size = _class_positions(labels)
    is_used = class_size > 1
    is_first_of_class = (rank == 0) & is_used
    first_of_class, exists = _nonzero(is_first_of_class, at_least=2)
    num_classes = len(first_of_class)
    # Classes are numbered by their first samples. Samples that are left out form one more class,
    # which is never paired.
    class_of = torch.where(is_used & exists, (is_first_of_class.cumsum(0) - 1)[first], num_classes)
    # At least 2, so that means over no quadruple are finite.
    sizes = _group_sums(x.new_ones(len(x)), class_of, num_classes + 1).clamp(min=2)
    if k == 2:
        within, between, *_ = _MeanSquares.apply(x, sizes, class_of)
    else:
        # A view, because torch.compile fails if one tensor is passed twice to a custom function.
        within, between = _mean_entries(pairwise_distances(x, x.view_as(x)).pow(k), class_of, sizes)
    a, b = _index_pairs(num_classes, labels.device)
    # A row of ``between`` has num_classes + 1 entries, because of the class of left-out samples.
    return QuadrupleMeans(
        (within.index_select(0, a) + within.index_select(0, b)) * exists,
        between.flatten().gather(0, a * (num_classes + 1) + b) * exists,
        first_of_class[a],
        exists,
        is_used.sum() * exists,
    )


def pairs_where(mask: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the rows and columns where ``mask`` is True, each of shape (P,).

    Also returns whether there is any, shape (); if not, P is 1 and the pair is arbitrary.
    """
    flat, exists = _nonzero(mask.flatten(), at_least=1)
    return (flat // mask.shape[1], flat % mask.shape[1]), exists


def distances_of_pairs(
    x: Tensor, y: Tensor, *pairs: tuple[Tensor, Tensor], use_matrix: bool | None = None
) -> list[Tensor]:
    """Return ``|x_i - y_j|`` for each list of pairs (i, j), with zero gradient at 0.

    For few pairs, P x D numbers are gathered; for many, the N x M matrix of all distances is
    computed once and indexed. By default the matrix is used if the pairs would take more than four
    times its memory, which is about where it becomes faster (measured on a CPU with D = 128 and
    512); ``use_matrix`` overrides this.
    """
    if use_matrix is None:
        use_matrix = sum(len(i) for i, _ in pairs) * x.shape[1] > 4 * len(x) * len(y)
    if not use_matrix:
        return [paired_distances(x.index_select(0, i), y.index_select(0, j)) for i, j in pairs]
    # A view, because torch.compile fails if one tensor is passed twice to a custom function.
    matrix = pairwise_distances(x, y.view_as(y)).flatten()
    # Flat indices, because the gradient of gather is far cheaper than that of matrix[i, j].
    return [matrix.gather(0, i * len(y) + j) for i, j in pairs]


def _rank_in_run(values: Tensor) -> Tensor:
    """Return the number of equal values directly before each value, shape (N,)."""
    position = torch.arange(len(values), device=values.device)
    is_start = torch.cat([values.new_ones(1, dtype=torch.bool), values[1:] != values[:-1]])
    # The latest start so far is the start of the run.
    return position - position.where(is_start, 0).cummax(0).values


def _class_positions(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the position of each sample in its class.

    Returns:
        Index of the first sample of the class, rank of the sample among the samples of the class,
        and class size, each of shape (N,).
    """
    order = labels.argsort(stable=True)
    rank_in_order = _rank_in_run(labels[order])
    position = torch.arange(len(labels), device=labels.device)
    # ``order`` lists the samples class by class; scatter returns from it to the batch's order.
    first = torch.empty_like(position).scatter(0, order, order[position - rank_in_order])
    rank = torch.empty_like(position).scatter(0, order, rank_in_order)
    return first, rank, _group_sums(torch.ones_like(position), first, len(labels))[first]


def _nonzero(mask: Tensor, at_least: int) -> tuple[Tensor, Tensor]:
    """Return where ``mask`` is True, shape (P,), and whether P is at least ``at_least``, shape ().

    If P would be smaller, positions 0 to at_least - 1 are returned. So P is never 0, and callers
    need no branch on P, which torch.compile could not trace.
    """
    exists = mask.sum() >= at_least
    fallback = torch.arange(len(mask), device=mask.device) < at_least
    positions = torch.where(exists, mask, fallback).nonzero().squeeze(1)
    if torch.compiler.is_compiling():  # it cannot know the size that nonzero returns
        torch._check(len(positions) >= at_least)
    return positions, exists


def _index_pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all pairs a < b < ``n`` like torch.triu_indices, traceable for dynamic ``n``."""
    index = torch.arange(n, device=device)
    later = n - 1 - index  # the number of b for each a
    total = n * (n - 1) // 2
    a = index.repeat_interleave(later, output_size=total)
    # The pairs of each a follow those of all smaller ones, and their b count up from a + 1.
    return a, torch.arange(total, device=device) - (later.cumsum(0) - later - index - 1)[a]


def _group_sums(values: Tensor, group_of: Tensor, num_groups: int) -> Tensor:
    """Return the sum of each group of rows of ``values``, shape (num_groups, ...)."""
    return values.new_zeros(num_groups, *values.shape[1:]).index_add(0, group_of, values)


def _mean_entries(powers: Tensor, class_of: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return means of an (N, N) matrix within classes, shape (C,), and between them, (C, C).

    The diagonal of the matrix is zero and does not count.
    """
    sums = _group_sums(_group_sums(powers, class_of, len(sizes)).t(), class_of, len(sizes))
    return sums.diagonal() / (sizes * (sizes - 1)), sums / (sizes.unsqueeze(1) * sizes)


def _plain_mean_squares(x: Tensor, sizes: Tensor, class_of: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of ``_MeanSquares`` from plain operations."""
    squares = x.square().sum(dim=1)
    return _mean_entries(squares.unsqueeze(1) + squares - 2 * x @ x.t(), class_of, sizes)


class _MeanSquares(Fused):
    """Mean squared distances within classes, shape (C,), and between them, shape (C, C).

    The equations are in :func:`all_quadruples`. Most of the time goes into reading and writing
    N x D tensors; autograd would read and write them three times as often.
    """

    @staticmethod
    def forward(x: Tensor, sizes: Tensor, class_of: Tensor) -> tuple[Tensor, ...]:
        sums = _group_sums(x, class_of, len(sizes))
        means = sums / sizes.unsqueeze(1)
        deviations = means.index_select(0, class_of).sub_(x)
        variance = _group_sums(squared_lengths(deviations), class_of, len(sizes)) / sizes
        # Distances do not change under a shift; this one keeps the products precise.
        shift = sums.sum(dim=0) / len(x)
        centred = means - shift
        spread = variance + squared_lengths(centred)
        between = (spread.unsqueeze(1) + spread).addmm_(centred, centred.t(), alpha=-2)
        return variance * (2 * sizes / (sizes - 1)), between, centred, shift

    @staticmethod
    @second_derivatives_from(_plain_mean_squares)
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, sizes, class_of, _, _, centred, shift = ctx.saved_tensors
        grad_within, grad_between, *_ = grads
        # The gradient of a sample x is scale x + offset, with one scale and offset for each class.
        symmetric = grad_between + grad_between.t()
        grad_spread = symmetric.sum(dim=1)
        # Half the gradients of the means: the sum over b of symmetric_ab (m_a - m_b).
        grad_means = (grad_spread.unsqueeze(1) * centred).addmm_(symmetric, centred, alpha=-1)
        scale = 2 * (grad_spread + grad_within * (2 * sizes / (sizes - 1))) / sizes
        offset = grad_means * (2 / sizes).unsqueeze(1) - scale.unsqueeze(1) * (centred + shift)
        grad_x = offset.index_select(0, class_of)
        grad_x.addcmul_(scale.index_select(0, class_of).unsqueeze(1), x)
        return grad_x, None, None
