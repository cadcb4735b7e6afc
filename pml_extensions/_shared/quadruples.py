"""Quadruples and pairs of a batch, and the distances in them, for :class:`GradMLLoss`.

A quadruple (x1, x2, y1, y2) holds two samples of each of two classes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .numerics import Fused, differentiable_as, paired_distances, pairwise_distances


class QuadrupleMeans(NamedTuple):
    """What :func:`all_quadruples` returns, one entry for each pair of classes (A, B).

    ``within`` is the mean of :math:`|x_1-x_2|^k + |y_1-y_2|^k` and ``between`` the mean of
    :math:`|x_i-y_j|^k` over all quadruples of the two classes, ``first`` the position of the first
    sample of A, each of shape (P,). ``exists``, shape (), is False if there is no quadruple and one
    entry of zeros stands in. ``num_used``, shape (), counts the samples in any quadruple.
    """

    within: Tensor
    between: Tensor
    first: Tensor
    exists: Tensor
    num_used: Tensor


def disjoint_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return quadruples (x1, x2, y1, y2) that use each sample of the batch once at most.

    Classes stand in order of first appearance. Round r takes the r-th pair of samples of every
    class that has one and joins neighbours; what has no partner is left over. The work is done on
    the device of ``labels``, at least 4, which is waited for once: for the number of quadruples.

    Returns:
        Positions of shape (Q, 4), round by round, and whether there is any quadruple, shape ().
        If there is none, Q is 1 and arbitrary positions stand in.
    """
    order, ends = _joined_pairs(labels)
    last, exists = _positions(ends, at_least=1)
    return _quadruples_ending_at(last, order), exists


def padded_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return those of :func:`disjoint_quadruples` with a shape that nobody waits for.

    Returns:
        Positions of shape (N // 4, 4), the quadruples and after them the first one again, and their
        number, shape (). If it is 0, arbitrary positions stand in.
    """
    order, ends = _joined_pairs(labels)
    last = (~ends).to(torch.uint8).argsort(stable=True)[: len(labels) // 4]
    last = torch.where(ends[last], last, last[0])
    return _quadruples_ending_at(last, order), ends.sum()


def _joined_pairs(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions in which quadruples stand one by one, and where one ends, shapes (N,)."""
    n = len(labels)
    first, rank, count = _places(labels)
    rounds = torch.where(rank // 2 < count // 2, rank // 2, n)
    order = (rounds * n + first).argsort(stable=True)
    rounds = rounds[order]
    # Samples of one round now stand pair by pair, so every fourth of them completes a quadruple.
    return order, (_rank_in_run(rounds) % 4 == 3) & (rounds < n)


def _quadruples_ending_at(last: Tensor, order: Tensor) -> Tensor:
    steps = torch.arange(4, device=order.device)
    return order[(last - 3).clamp(min=0).unsqueeze(1) + steps]


def all_quadruples(x: Tensor, labels: Tensor, k: float) -> QuadrupleMeans:
    r"""Average powers of distances over all quadruples of each pair of classes.

    Classes stand in order of first appearance; those with one sample take no part. A mean over
    quadruples is a mean over pairs of samples, and with k = 2 that of class a is
    :math:`2 v_a n_a / (n_a - 1)` and that of a and b :math:`v_a + v_b + |m_a - m_b|^2`, where n
    counts samples, m is the mean and v the mean squared deviation: there is no matrix over samples.
    Other powers take an N x N matrix. The product of class means is the one place where TF32, if
    allowed, costs digits. The device is waited for once, to learn how many classes there are.
    """
    first, rank, count = _places(labels)
    takes_part = count > 1
    is_class = (rank == 0) & takes_part
    starts, exists = _positions(is_class, at_least=2)
    classes = len(starts)
    # Samples that take no part form one more class, which is never paired.
    class_of = torch.where(takes_part & exists, (is_class.cumsum(0) - 1)[first], classes)
    size = _sums(x.new_ones(len(x)), class_of, classes + 1).clamp(min=2)
    if k == 2:
        within, between, *_ = _MeanSquares.apply(x, size, class_of)
    else:
        within, between = _means(pairwise_distances(x, x.view_as(x)).pow(k), class_of, size)
    a, b = _index_pairs(classes, labels.device)
    return QuadrupleMeans(
        (within.index_select(0, a) + within.index_select(0, b)) * exists,
        between.flatten().gather(0, a * (classes + 1) + b) * exists,
        starts[a],
        exists,
        takes_part.sum() * exists,
    )


def pairs_where(mask: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the rows and columns where ``mask`` is True, each of shape (P,), and whether it is.

    If it is nowhere, P is 1 and an arbitrary pair stands in.
    """
    flat, exists = _positions(mask.flatten(), at_least=1)
    return (flat // mask.shape[1], flat % mask.shape[1]), exists


def distances_of_pairs(
    x: Tensor, y: Tensor, *pairs: tuple[Tensor, Tensor], take_matrix: bool | None = None
) -> list[Tensor]:
    """Return ``|x_i - y_j|`` for lists of pairs (i, j), with zero gradient where both coincide.

    Few pairs are gathered as P x D numbers; of many, the N x M matrix of all distances is made once
    and read. The bound, four times the memory of the matrix, is about where the matrix becomes
    the faster way (measured on a CPU with D = 128 and 512); ``take_matrix`` overrides the choice.
    """
    if take_matrix is None:
        take_matrix = sum(len(i) for i, _ in pairs) * x.shape[1] > 4 * len(x) * len(y)
    if not take_matrix:
        return [paired_distances(x.index_select(0, i), y.index_select(0, j)) for i, j in pairs]
    # A view, because torch.compile takes no function of the same tensor twice.
    matrix = pairwise_distances(x, y.view_as(y)).flatten()
    # Flat positions, because the gradient of gather is far cheaper than that of matrix[i, j].
    return [matrix.gather(0, i * len(y) + j) for i, j in pairs]


def _rank_in_run(values: Tensor) -> Tensor:
    """Return how many equal values stand directly before each value, shape (N,)."""
    position = torch.arange(len(values), device=values.device)
    is_start = torch.cat([values.new_ones(1, dtype=torch.bool), values[1:] != values[:-1]])
    return position - position.where(is_start, 0).cummax(0).values


def _places(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first position of each sample's class, its rank in it and the class's size."""
    order = labels.argsort(stable=True)
    rank_in_order = _rank_in_run(labels[order])
    position = torch.arange(len(labels), device=labels.device)
    first = torch.empty_like(position).scatter(0, order, order[position - rank_in_order])
    rank = torch.empty_like(position).scatter(0, order, rank_in_order)
    return first, rank, _sums(torch.ones_like(position), first, len(labels))[first]


def _positions(mask: Tensor, at_least: int) -> tuple[Tensor, Tensor]:
    """Return where ``mask`` is True, shape (P,), and whether that is ``at_least`` times, shape ().

    If it is not, the first positions stand in. So P never is 0, and nobody needs a branch on it,
    which torch.compile could not take.
    """
    exists = mask.sum() >= at_least
    stand_in = torch.arange(len(mask), device=mask.device) < at_least
    positions = torch.where(exists, mask, stand_in).nonzero().squeeze(1)
    if torch.compiler.is_compiling():
        torch._check(len(positions) >= at_least)
    return positions, exists


def _index_pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all a < b below ``n``, as triu_indices does, but for an n that the compiler lacks."""
    index = torch.arange(n, device=device)
    later = n - 1 - index
    total = n * (n - 1) // 2
    a = index.repeat_interleave(later, output_size=total)
    return a, torch.arange(total, device=device) - (later.cumsum(0) - later - index - 1)[a]


def _sums(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    """Return the sum of each group of rows of ``values``, shape (groups, ...)."""
    return values.new_zeros(groups, *values.shape[1:]).index_add(0, group_of, values)


def _means(powers: Tensor, class_of: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means of a matrix over samples within classes, shape (C,), and between, (C, C)."""
    sums = _sums(_sums(powers, class_of, len(size)).t(), class_of, len(size))
    return sums.diagonal() / (size * (size - 1)), sums / (size.unsqueeze(1) * size)


def _plain_mean_squares(x: Tensor, size: Tensor, class_of: Tensor) -> tuple[Tensor, Tensor]:
    squares = x.square().sum(dim=1)
    return _means(squares.unsqueeze(1) + squares - 2 * x @ x.t(), class_of, size)


class _MeanSquares(Fused):
    """Mean squared distances within classes, shape (C,), and between them, shape (C, C).

    Its cost is the traffic of N x D tensors: here one forward and one backward, of autograd's own
    three times as many.
    """

    @staticmethod
    def forward(x: Tensor, size: Tensor, class_of: Tensor) -> tuple[Tensor, ...]:
        sums = _sums(x, class_of, len(size))
        means = sums / size.unsqueeze(1)
        deviations = means.index_select(0, class_of).sub_(x)
        variance = _sums(_squared_lengths(deviations), class_of, len(size)) / size
        # No difference feels a shift, and without this one the products would cancel digits.
        shift = sums.sum(dim=0) / len(x)
        centred = means - shift
        spread = variance + _squared_lengths(centred)
        between = (spread.unsqueeze(1) + spread).addmm_(centred, centred.t(), alpha=-2)
        return variance * (2 * size / (size - 1)), between, centred, shift

    @staticmethod
    @differentiable_as(_plain_mean_squares)
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, size, class_of, _, _, centred, shift = ctx.saved_tensors
        grad_within, grad_between, *_ = grads
        both = grad_between + grad_between.t()
        grad_spread = both.sum(dim=1)
        grad_means = (grad_spread.unsqueeze(1) * centred).addmm_(both, centred, alpha=-1)
        scale = 2 * (grad_spread + grad_within * (2 * size / (size - 1))) / size
        offset = grad_means * (2 / size).unsqueeze(1) - scale.unsqueeze(1) * (centred + shift)
        grad_x = offset.index_select(0, class_of)
        grad_x.addcmul_(scale.index_select(0, class_of).unsqueeze(1), x)
        return grad_x, None, None


def _squared_lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1).square()
