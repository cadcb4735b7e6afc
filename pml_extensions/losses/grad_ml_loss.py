"""Gradient-designed metric-learning loss on quadruples (GradML)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.reducers import MeanReducer
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from .._shared.base_losses import Float32Loss, IndicesTuple, LossDict
from .._shared.checks import at_least_one, embedding_shape, non_negative, one_of
from .._shared.numerics import (
    Fused,
    differentiable_as,
    paired_distances,
    pairwise_distances,
    unit_vectors,
)

Quadruples = Literal["disjoint", "all"]


class GradMLLoss(Float32Loss, BaseMetricLossFunction):
    r"""Pulls two samples of a class together and pushes them away from two of another class.

    .. math::
        L = |x_1 - x_2|^k + |y_1 - y_2|^k - w \sum_{i,j \in \{1,2\}} |x_i - y_j|^k

    averaged over quadruples. "GradML: A Gradient-based Loss for Deep Metric Learning", Eq. 11.
    For k = 2 it equals :math:`(1-w)(|x_1-x_2|^2 + |y_1-y_2|^2) - 4w\,|\bar x - \bar y|^2`:
    at the paper's w = 1 the pull within classes cancels exactly and only class means repel each
    other, for larger w the pull turns into a push; w = 0.5 balances both. The loss is negative for
    well separated classes.

    The positive and the negative terms are separate sub-losses, ``pos_loss`` (at least 0) and
    ``neg_loss`` (at most 0): a reducer that drops values below 0, such as PML's AvgNonZeroReducer,
    drops all of ``neg_loss``. With the default MeanReducer their sum is the mean of the equation.

    *Quadruples* are formed from the batch if only embeddings and labels are given. ``"disjoint"``
    uses each sample at most once (:func:`disjoint_quadruples`); ``"all"`` averages over all
    quadruples of each pair of classes and then over pairs of classes (:func:`all_quadruples`). Each
    quadruple, or pair of classes, is an entry of both sub-losses: reduction type "element", indexed
    by its first sample. ``num_unused_samples`` counts the samples of the last batch that are in no
    quadruple.

    *Pairs* are used instead if ``indices_tuple`` or ``ref_emb`` is given; without
    ``indices_tuple``, all pairs of embeddings and references. The entries, of reduction types
    "pos_pair" and "neg_pair", are :math:`2|x_i-x_j|^k` and :math:`-4w|x_i-y_j|^k`, so that over all
    pairs of a batch of equal classes both means add up to the loss on all quadruples.
    ``quadruples`` has no effect here.

    Without quadruples or pairs the loss is 0. Everything is computed in float32 at least;
    coincident points have gradient 0. On an accelerator, disjoint quadruples with the default
    reducer and mined pairs need no synchronisation; all other calls synchronise once for the number
    of entries (twice for all pairs with ``ref_emb``). For these, ``torch.compile`` with
    ``fullgraph=True`` needs ``torch._dynamo.config.capture_dynamic_output_shape_ops`` (and for
    ``"all"`` a torch newer than 2.5); otherwise the graph breaks there.

    Args:
        k: Power of the distances, at least 1. The paper has 1 to 4, best near 2 to 2.5.
            Above 2 the minimum over all unit vectors puts half of the classes onto one point and
            the others onto its opposite (Bjorck 1956).
        w: Weight of the four distances between the classes. The paper has 0.5, 1 and 2, best 1.
        normalize_embeddings: Normalise embeddings to unit length; otherwise the loss has no lower
            bound.
        quadruples: ``"disjoint"`` or ``"all"``.
        term_weights: The weights :math:`a_1, \dots, a_6` of Eq. 10 for the distances x1-x2, y1-y2,
            x1-y1, x1-y2, x2-y1 and x2-y2, where x is the class that appears first in the batch.
            None stands for (1, 1, w, w, w, w). All quadruples, and pairs, have no such order: they
            use the mean of the first two weights and the mean of the last four.
        **kwargs: PML's ``reducer``, ``embedding_regularizer`` and its weight.

    Raises:
        ValueError: An argument is out of range, or both ``w`` and ``term_weights`` are given.
    """

    def __init__(
        self,
        k: float = 2.0,
        w: float = 1.0,
        normalize_embeddings: bool = True,
        quadruples: Quadruples = "disjoint",
        term_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Below 1 the gradient grows without bound as two points approach each other.
        self.k = at_least_one("k", k)
        self.w = non_negative("w", w)
        self.normalize_embeddings = one_of(
            "normalize_embeddings", normalize_embeddings, (True, False)
        )
        self.quadruples = one_of("quadruples", quadruples, ("disjoint", "all"))
        self.term_weights = _six_weights(term_weights, self.w)
        self._batch_size = 0
        self.num_unused_samples = 0
        if not normalize_embeddings and any(self._weights()[2:]):
            warnings.warn(
                "GradMLLoss without normalize_embeddings has no lower bound: it decreases for ever "
                "as the embeddings grow.",
                stacklevel=2,
            )
        names = ["k", "w"] if term_weights is None else ["k"]
        self.add_to_recordable_attributes(list_of_names=names, is_stat=False)
        self.add_to_recordable_attributes(name="num_unused_samples", is_stat=True)

    @property
    def num_unused_samples(self) -> int:
        """Number of samples of the last batch in no quadruple; 0 if pairs were used."""
        # Stored as a tensor, so that the device is synchronised only if it is read.
        value = self._num_unused_samples
        unused = int(value.cpu().numpy() if isinstance(value, Tensor) else value)
        if 0 < unused == self._batch_size:
            warnings.warn(  # shown once, because the text is always the same
                "GradMLLoss found no quadruple in a batch, so its loss and gradient are 0: a batch "
                "must hold two samples of each of two classes, as with "
                "PML's MPerClassSampler(labels, m=4).",
                stacklevel=2,
            )
        return unused

    @num_unused_samples.setter
    def num_unused_samples(self, value: Tensor | int) -> None:
        old = vars(self).get("_num_unused_samples")
        if not isinstance(old, Tensor) or getattr(value, "device", old.device) != old.device:
            self._num_unused_samples = value
        elif isinstance(value, Tensor):
            old.copy_(value)  # in place, because a CUDA graph writes to this memory
        else:
            old.fill_(value)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple,
        ref_emb: Tensor,
        ref_labels: Tensor | None,
    ) -> LossDict:
        """Return PML's loss dictionary; called by ``forward``."""
        embedding_shape(embeddings)
        embedding_shape(ref_emb, embeddings.shape[1])
        has_reference = ref_emb is not embeddings or ref_labels is not labels
        if indices_tuple is None:
            c_f.labels_required(labels)
            if ref_labels is None:
                raise ValueError("ref_emb was given without ref_labels and indices_tuple; add one.")
        elif len(indices_tuple) not in (3, 4):
            raise ValueError(
                "indices_tuple must hold 3 tensors (triplets) or 4 (pairs), "
                f"but holds {len(indices_tuple)}."
            )
        if len(embeddings) == 0 or len(ref_emb) == 0:
            return self.zero_losses()
        x = self._vectors(embeddings)
        if indices_tuple is None and labels is not None and not has_reference:
            return self._quadruple_losses(x, labels)
        y = x if ref_emb is embeddings else self._vectors(ref_emb.to(x.dtype))
        return self._pair_losses(x, y, labels, indices_tuple, ref_labels)

    def _vectors(self, embeddings: Tensor) -> Tensor:
        return unit_vectors(embeddings) if self.normalize_embeddings else embeddings

    def _quadruple_losses(self, x: Tensor, labels: Tensor) -> LossDict:
        self.num_unused_samples = self._batch_size = len(x)
        if len(x) < 4:
            return self.zero_losses()
        terms = self._disjoint if self.quadruples == "disjoint" else self._all
        pos, neg, first = terms(x, labels)
        if type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling():
            _ = self.num_unused_samples  # read for its warning; needs no synchronisation here
        return {
            "pos_loss": {"losses": pos, "indices": first, "reduction_type": "element"},
            "neg_loss": {"losses": neg, "indices": first, "reduction_type": "element"},
        }

    def _disjoint(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return positive terms, negative terms and first samples of disjoint quadruples."""
        factor: Tensor
        if self._reduces_by_mean():
            # Padding gets loss 0; the other entries are scaled so that the mean is right.
            index, count = padded_quadruples(labels)
            entries = torch.arange(len(index), device=count.device)
            factor = (entries < count) * (len(index) / count.clamp(min=1)).to(x.dtype)
            self.num_unused_samples = len(x) - 4 * count
        else:
            index, factor = disjoint_quadruples(labels)
            self.num_unused_samples = len(x) - 4 * len(index) * factor
        x1, x2, y1, y2 = x.index_select(0, index.flatten()).unflatten(0, (-1, 4)).unbind(dim=1)
        a1, a2, a3, a4, a5, a6 = self._weights()
        pos = a1 * self._power(x1, x2) + a2 * self._power(y1, y2)
        neg = a3 * self._power(x1, y1) + a4 * self._power(x1, y2)
        neg = neg + a5 * self._power(x2, y1) + a6 * self._power(x2, y2)
        return pos * factor, -neg * factor, index[:, 0]

    def _power(self, x: Tensor, y: Tensor) -> Tensor:
        """Return |x - y|^k of each pair."""
        return paired_distances(x, y).pow(self.k)

    def _reduces_by_mean(self) -> bool:
        """Return whether the entries are only used in a mean, so that padding goes unseen."""
        reducers = getattr(self.reducer, "reducers", {}).values()
        return bool(reducers) and all(
            type(reducer) is MeanReducer and not reducer.collect_stats for reducer in reducers
        )

    def _all(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return positive terms, negative terms and first samples, for each pair of classes."""
        means = all_quadruples(x, labels, self.k)
        self.num_unused_samples = len(x) - means.num_used
        pos = sum(self._weights()[:2]) / 2 * means.within
        return pos, -sum(self._weights()[2:]) * means.between, means.first

    def _pair_losses(
        self,
        x: Tensor,
        y: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple,
        ref_labels: Tensor | None,
    ) -> LossDict:
        pos_exist: Tensor | bool = True
        neg_exist: Tensor | bool = True
        if indices_tuple is None:
            matches, differences = lmu.get_matches_and_diffs(labels, ref_labels)
            pos, pos_exist = pairs_where(matches.bool())
            neg, neg_exist = pairs_where(differences.bool())
        else:
            a1, p, a2, n = lmu.convert_to_pairs(indices_tuple, labels, ref_labels)
            pos, neg = (a1, p), (a2, n)
        use_matrix = True if indices_tuple is None else None
        pos_distances, neg_distances = distances_of_pairs(x, y, pos, neg, use_matrix=use_matrix)
        pos_losses = sum(self._weights()[:2]) * pos_distances.pow(self.k) * pos_exist
        neg_losses = -sum(self._weights()[2:]) * neg_distances.pow(self.k) * neg_exist
        return {
            "pos_loss": self._pair_loss("pos_pair", pos_losses, pos),
            "neg_loss": self._pair_loss("neg_pair", neg_losses, neg),
        }

    def _pair_loss(
        self, reduction_type: str, losses: Tensor, indices: tuple[Tensor, Tensor]
    ) -> dict[str, Any]:
        if len(losses) == 0:
            return self.zero_loss()
        return {"losses": losses, "indices": indices, "reduction_type": reduction_type}

    def _weights(self) -> tuple[float, ...]:
        return self.term_weights or (1.0, 1.0, self.w, self.w, self.w, self.w)

    def _sub_loss_names(self) -> list[str]:
        return ["pos_loss", "neg_loss"]


def _six_weights(term_weights: Sequence[float] | None, w: float) -> tuple[float, ...] | None:
    """Check ``term_weights`` and return them as floats."""
    if term_weights is None:
        return None
    if w != 1:
        raise ValueError(
            f"w={w} and term_weights={term_weights!r} were both given; leave one out (w is "
            "shorthand for term_weights=(1, 1, w, w, w, w))."
        )
    try:
        weights = tuple(term_weights)
    except TypeError:
        weights = ()
    if len(weights) != 6:
        raise ValueError(
            "term_weights must be the six numbers a_1 to a_6 of Eq. 10, "
            f"but got term_weights={term_weights!r}."
        )
    return tuple(non_negative(f"term_weights[{i}]", a) for i, a in enumerate(weights))


# -- quadruples of a batch, and the distances in them ----------------------------------------------


class QuadrupleMeans(NamedTuple):
    """Result of :func:`all_quadruples`, with one entry for each pair of classes (A, B).

    ``within`` is the mean of :math:`|x_1-x_2|^k + |y_1-y_2|^k` and ``between`` the mean of
    :math:`|x_i-y_j|^k` over all quadruples of the two classes, ``first`` the index of the first
    sample of A, each of shape (P,). Without any quadruple, ``exists``, shape (), is False and there
    is one entry of zeros. ``num_used``, shape (), counts the samples that are in a quadruple.
    """

    within: Tensor
    between: Tensor
    first: Tensor
    exists: Tensor
    num_used: Tensor


def disjoint_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return quadruples (x1, x2, y1, y2) that use each sample of the batch at most once.

    Classes are in order of first appearance. Round r takes the r-th pair of samples of every class
    that has one, and joins each two consecutive pairs to a quadruple; an odd pair is left out. One
    synchronisation with the device of ``labels`` is needed, for the number of quadruples.

    Args:
        labels: Shape (N,), N at least 4.

    Returns:
        Indices into the batch of shape (Q, 4), round by round, and whether there is any quadruple,
        shape (). If there is none, Q is 1 and the indices are arbitrary.
    """
    order, ends = _ordered_by_quadruple(labels)
    last, exists = _nonzero(ends, at_least=1)
    return _quadruples_ending_at(last, order), exists


def padded_quadruples(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the quadruples of :func:`disjoint_quadruples`, padded to a fixed shape.

    The shape does not depend on values, so no synchronisation with the device is needed.

    Args:
        labels: Shape (N,), N at least 4.

    Returns:
        Indices into the batch of shape (N // 4, 4), padded with the first quadruple, and the number
        of quadruples, shape (). If it is 0, all indices are arbitrary.
    """
    order, ends = _ordered_by_quadruple(labels)
    last = (~ends).to(torch.uint8).argsort(stable=True)[: len(labels) // 4]
    last = torch.where(ends[last], last, last[0])
    return _quadruples_ending_at(last, order), ends.sum()


def _ordered_by_quadruple(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return an order of the samples in which the four of a quadruple follow each other.

    Returns:
        Indices into the batch, and whether a quadruple ends there, both of shape (N,).
    """
    n = len(labels)
    first, rank, count = _class_positions(labels)
    rounds = torch.where(rank // 2 < count // 2, rank // 2, n)
    order = (rounds * n + first).argsort(stable=True)
    rounds = rounds[order]
    # The samples of a round are now in pairs, so every fourth of them completes a quadruple.
    return order, (_rank_in_run(rounds) % 4 == 3) & (rounds < n)


def _quadruples_ending_at(last: Tensor, order: Tensor) -> Tensor:
    """Return the quadruples whose last samples are at positions ``last`` of ``order``."""
    steps = torch.arange(4, device=order.device)
    return order[(last - 3).clamp(min=0).unsqueeze(1) + steps]


def all_quadruples(x: Tensor, labels: Tensor, k: float) -> QuadrupleMeans:
    r"""Average powers of distances over all quadruples of each pair of classes.

    Classes are in order of first appearance; those with a single sample are left out. A mean over
    quadruples is a mean over pairs of samples. For k = 2 the mean within class a is
    :math:`2 v_a n_a / (n_a - 1)` and the mean between a and b is :math:`v_a + v_b + |m_a - m_b|^2`,
    where n is the number of samples, m the mean and v the mean squared deviation, so no matrix over
    samples is needed. Other powers need an N x N matrix. TF32, if allowed, costs precision only in
    the product of class means. One synchronisation with the device is needed, for the number of
    classes.
    """
    first, rank, count = _class_positions(labels)
    is_used = count > 1
    is_class = (rank == 0) & is_used
    starts, exists = _nonzero(is_class, at_least=2)
    classes = len(starts)
    # Samples that are left out form one more class, which is never paired.
    class_of = torch.where(is_used & exists, (is_class.cumsum(0) - 1)[first], classes)
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
    """Return ``|x_i - y_j|`` for lists of pairs (i, j), with zero gradient where both coincide.

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
    return position - position.where(is_start, 0).cummax(0).values


def _class_positions(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each sample, where its class first occurs, its rank in it and the class size."""
    order = labels.argsort(stable=True)
    rank_in_order = _rank_in_run(labels[order])
    position = torch.arange(len(labels), device=labels.device)
    first = torch.empty_like(position).scatter(0, order, order[position - rank_in_order])
    rank = torch.empty_like(position).scatter(0, order, rank_in_order)
    return first, rank, _sums(torch.ones_like(position), first, len(labels))[first]


def _nonzero(mask: Tensor, at_least: int) -> tuple[Tensor, Tensor]:
    """Return where ``mask`` is True, shape (P,), and whether that is ``at_least`` times, shape ().

    If it is not, positions 0 to at_least - 1 are returned. So P is never 0, and callers need no
    branch on it, which torch.compile could not trace.
    """
    exists = mask.sum() >= at_least
    fallback = torch.arange(len(mask), device=mask.device) < at_least
    positions = torch.where(exists, mask, fallback).nonzero().squeeze(1)
    if torch.compiler.is_compiling():
        torch._check(len(positions) >= at_least)
    return positions, exists


def _index_pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all pairs a < b below ``n``, as triu_indices, but traceable for a dynamic ``n``."""
    index = torch.arange(n, device=device)
    later = n - 1 - index
    total = n * (n - 1) // 2
    a = index.repeat_interleave(later, output_size=total)
    return a, torch.arange(total, device=device) - (later.cumsum(0) - later - index - 1)[a]


def _sums(values: Tensor, group_of: Tensor, groups: int) -> Tensor:
    """Return the sum of each group of rows of ``values``, shape (groups, ...)."""
    return values.new_zeros(groups, *values.shape[1:]).index_add(0, group_of, values)


def _means(powers: Tensor, class_of: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Return means of an (N, N) matrix within classes, shape (C,), and between them, (C, C)."""
    sums = _sums(_sums(powers, class_of, len(size)).t(), class_of, len(size))
    return sums.diagonal() / (size * (size - 1)), sums / (size.unsqueeze(1) * size)


def _plain_mean_squares(x: Tensor, size: Tensor, class_of: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of ``_MeanSquares`` from plain operations."""
    squares = x.square().sum(dim=1)
    return _means(squares.unsqueeze(1) + squares - 2 * x @ x.t(), class_of, size)


class _MeanSquares(Fused):
    """Mean squared distances within classes, shape (C,), and between them, shape (C, C).

    Its time is spent on reading and writing N x D tensors, which autograd does three times as
    often.
    """

    @staticmethod
    def forward(x: Tensor, size: Tensor, class_of: Tensor) -> tuple[Tensor, ...]:
        sums = _sums(x, class_of, len(size))
        means = sums / size.unsqueeze(1)
        deviations = means.index_select(0, class_of).sub_(x)
        variance = _sums(_squared_lengths(deviations), class_of, len(size)) / size
        # Distances do not change under a shift; this one keeps the digits of the products.
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
        symmetric = grad_between + grad_between.t()
        grad_spread = symmetric.sum(dim=1)
        grad_means = (grad_spread.unsqueeze(1) * centred).addmm_(symmetric, centred, alpha=-1)
        scale = 2 * (grad_spread + grad_within * (2 * size / (size - 1))) / size
        offset = grad_means * (2 / size).unsqueeze(1) - scale.unsqueeze(1) * (centred + shift)
        grad_x = offset.index_select(0, class_of)
        grad_x.addcmul_(scale.index_select(0, class_of).unsqueeze(1), x)
        return grad_x, None, None


def _squared_lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1).square()
