"""Gradient-designed metric-learning loss on quadruples (GradML)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.reducers import MeanReducer
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from .._shared.base_losses import Float32Loss, IndicesTuple, LossDict
from .._shared.checks import at_least_one, embedding_shape, non_negative, one_of
from .._shared.numerics import paired_distances, unit_vectors
from .._shared.quadruples import (
    all_quadruples,
    disjoint_quadruples,
    distances_of_pairs,
    padded_quadruples,
    pairs_where,
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
    of entries (twice for all pairs with ``ref_emb``). For those calls, ``torch.compile`` with
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
            None means (1, 1, w, w, w, w). ``quadruples="all"`` and pairs have no such order, so
            they use the mean of the first two weights and the mean of the last four.
        **kwargs: PML's ``reducer``, ``embedding_regularizer`` and ``embedding_reg_weight``.

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
        self.term_weights = _checked_term_weights(term_weights, self.w)
        self._batch_size = 0
        self.num_unused_samples = 0
        # The last four weights push classes apart.
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
        """Number of samples of the last batch that are in no quadruple; 0 if pairs were used."""
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
        # A tensor is overwritten in place unless the device changes, because a CUDA graph writes to
        # its memory. At first there is no old value.
        old = vars(self).get("_num_unused_samples")
        if not isinstance(old, Tensor) or getattr(value, "device", old.device) != old.device:
            self._num_unused_samples = value
        elif isinstance(value, Tensor):
            old.copy_(value)
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
        # Without references, PML's forward passes embeddings and labels in their place.
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
        x = self._normalized(embeddings)
        if indices_tuple is None and labels is not None and not has_reference:
            return self._quadruple_losses(x, labels)
        y = x if ref_emb is embeddings else self._normalized(ref_emb.to(x.dtype))
        return self._pair_losses(x, y, labels, indices_tuple, ref_labels)

    def _normalized(self, embeddings: Tensor) -> Tensor:
        return unit_vectors(embeddings) if self.normalize_embeddings else embeddings

    def _quadruple_losses(self, x: Tensor, labels: Tensor) -> LossDict:
        """Return PML's loss dictionary over quadruples of the batch."""
        self.num_unused_samples = self._batch_size = len(x)
        if len(x) < 4:
            return self.zero_losses()
        compute_terms = self._disjoint_terms if self.quadruples == "disjoint" else self._all_terms
        pos, neg, first = compute_terms(x, labels)
        # Subclasses of Tensor, such as fake tensors, may have no values.
        if type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling():
            _ = self.num_unused_samples  # reading it may warn; needs no synchronisation on a CPU
        return {
            "pos_loss": {"losses": pos, "indices": first, "reduction_type": "element"},
            "neg_loss": {"losses": neg, "indices": first, "reduction_type": "element"},
        }

    def _disjoint_terms(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return positive terms, negative terms and first samples of disjoint quadruples."""
        factor: Tensor
        if self._reduces_by_mean():
            # Padding gets loss 0; the other entries are scaled so that the mean is right.
            index, count = padded_quadruples(labels)
            entries = torch.arange(len(index), device=count.device)
            factor = (entries < count) * (len(index) / count.clamp(min=1)).to(x.dtype)
            self.num_unused_samples = len(x) - 4 * count
        else:
            # The factor is False if there is no quadruple, and then the loss is 0.
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
        """Return whether the entries are only used in a mean, so that padding has no effect."""
        reducers = getattr(self.reducer, "reducers", {}).values()
        return bool(reducers) and all(
            type(reducer) is MeanReducer and not reducer.collect_stats for reducer in reducers
        )

    def _all_terms(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return positive terms, negative terms and first samples, one for each pair of classes."""
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
        """Return PML's loss dictionary over given pairs, or over all pairs."""
        # False if there is no such pair; an arbitrary pair then gets loss 0 (see pairs_where).
        pos_exist: Tensor | bool = True
        neg_exist: Tensor | bool = True
        if indices_tuple is None:
            matches, differences = lmu.get_matches_and_diffs(labels, ref_labels)
            pos, pos_exist = pairs_where(matches.bool())
            neg, neg_exist = pairs_where(differences.bool())
        else:
            # Anchors and positives, and anchors and negatives.
            a1, p, a2, n = lmu.convert_to_pairs(indices_tuple, labels, ref_labels)
            pos, neg = (a1, p), (a2, n)
        # All pairs need the whole matrix; for given pairs, None chooses the faster way.
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
        """Return the weights of the six distances in a quadruple."""
        return self.term_weights or (1.0, 1.0, self.w, self.w, self.w, self.w)

    def _sub_loss_names(self) -> list[str]:
        return ["pos_loss", "neg_loss"]


def _checked_term_weights(
    term_weights: Sequence[float] | None, w: float
) -> tuple[float, ...] | None:
    """Check ``term_weights`` and return them as floats, or None if they are None."""
    if term_weights is None:
        return None
    if w != 1:  # not the default, so it was given
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
