"""Gradient-designed metric-learning loss on quadruples (GradML)."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any, Literal

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions.functional import (
    at_least_float32,
    paired_distances,
    pairwise_distances,
    unit_vectors,
    without_autocast,
)
from pml_extensions.losses import _checks

Quadruples = Literal["disjoint", "all"]


def disjoint_quadruples(labels: list[int]) -> list[tuple[int, int, int, int]]:
    """Return disjoint index quadruples (x1, x2, y1, y2): two samples each of two classes.

    Classes stand in order of first appearance. Round r takes the r-th pair of samples of every
    class that has one and joins neighbours; what has no partner is left over.

    Args:
        labels: The label of each sample.

    Returns:
        Quadruples of positions in ``labels``, round by round.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        members[label].append(index)
    rounds = max((len(indices) // 2 for indices in members.values()), default=0)
    quadruples = []
    for start in range(0, 2 * rounds, 2):
        pairs = [tuple(m[start : start + 2]) for m in members.values() if len(m) >= start + 2]
        for (x1, x2), (y1, y2) in zip(pairs[::2], pairs[1::2], strict=False):
            quadruples.append((x1, x2, y1, y2))
    return quadruples


class GradMLLoss(BaseMetricLossFunction):
    r"""Pulls two samples of a class together and pushes them off two samples of another class.

    .. math::
        L = |x_1 - x_2|^k + |y_1 - y_2|^k - w \sum_{i,j \in \{1,2\}} |x_i - y_j|^k

    averaged over quadruples. "GradML: A Gradient-based Loss for Deep Metric Learning", Eq. 11.
    For k = 2 it equals :math:`(1-w)(|x_1-x_2|^2 + |y_1-y_2|^2) - 4w\,|\bar x - \bar y|^2`:
    at the paper's w = 1 the pull within classes cancels exactly and only class means repel each
    other; w = 0.5 balances both. The loss is negative where it is good.

    The paper does not say how quadruples are drawn. ``"disjoint"`` uses each sample once (see
    :func:`disjoint_quadruples`); ``num_unused_samples`` counts what was left over in the last
    batch. ``"all"`` averages over all quadruples of each pair of classes and then over pairs of
    classes; classes with one sample take no part. Each quadruple, or pair of classes, is one
    entry for the reducer (reduction type "element", indexed by its first sample). Weights that a
    miner gives to samples are averaged over the samples of the entry, class by class.

    Args:
        k: Power of the distances, at least 1.
        w: Weight of the four distances between the classes.
        normalize_embeddings: Normalise embeddings to unit length; without it the loss has no
            lower bound.
        quadruples: ``"disjoint"`` or ``"all"``.
        **kwargs: PML's ``reducer``, ``embedding_regularizer`` and its weight.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        k: float = 2.0,
        w: float = 1.0,
        normalize_embeddings: bool = True,
        quadruples: Quadruples = "disjoint",
        **kwargs: Any,
    ) -> None:
        _checks.fixed_distance(type(self).__name__, kwargs)
        super().__init__(**kwargs)
        # Below 1 the gradient grows without bound as two points meet.
        self.k = _checks.at_least_one("k", k)
        self.w = _checks.non_negative("w", w)
        self.normalize_embeddings = _checks.one_of(
            "normalize_embeddings", normalize_embeddings, (True, False)
        )
        self.quadruples = _checks.one_of("quadruples", quadruples, ("disjoint", "all"))
        self.num_unused_samples = 0
        if not normalize_embeddings and w > 0:
            warnings.warn(
                "GradMLLoss without normalize_embeddings has no lower bound: embeddings that grow "
                "lower it for ever.",
                stacklevel=2,
            )
        self.add_to_recordable_attributes(list_of_names=["k", "w"], is_stat=False)
        self.add_to_recordable_attributes(name="num_unused_samples", is_stat=True)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: tuple[Tensor, ...] | None,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
    ) -> dict[str, dict[str, Any]]:
        """Return PML's loss dictionary; called by ``forward``."""
        c_f.labels_required(labels)
        assert labels is not None
        c_f.ref_not_supported(embeddings, labels, ref_emb, ref_labels)
        _checks.embedding_shape(embeddings)
        if len(embeddings) == 0:
            self.num_unused_samples = 0
            return self.zero_losses()
        with without_autocast(embeddings):
            x = at_least_float32(embeddings)
            if self.normalize_embeddings:
                x = unit_vectors(x)
            weights = lmu.convert_to_weights(indices_tuple, labels, dtype=x.dtype)
            terms = self._disjoint if self.quadruples == "disjoint" else self._all
            losses, indices = terms(x, labels, weights)
        if len(losses) == 0:
            return self.zero_losses()
        return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}

    def _disjoint(self, x: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        found = disjoint_quadruples(labels.tolist())
        self.num_unused_samples = len(labels) - 4 * len(found)
        index = torch.tensor(found, dtype=torch.long, device=x.device).reshape(-1, 4)
        x1, x2, y1, y2 = x[index].unbind(dim=1)
        within = self._power(paired_distances(x1, x2)) + self._power(paired_distances(y1, y2))
        between = torch.stack(
            [self._power(paired_distances(a, b)) for a in (x1, x2) for b in (y1, y2)]
        ).sum(dim=0)
        return (within - self.w * between) * weights[index].mean(dim=1), index[:, 0]

    def _all(self, x: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        classes, class_of, counts = labels.unique(return_inverse=True, return_counts=True)
        is_member = class_of.unsqueeze(0) == torch.arange(len(classes), device=x.device)[:, None]
        is_member, counts = is_member[counts > 1], counts[counts > 1]
        self.num_unused_samples = len(labels) - int(counts.sum())
        member, size = is_member.to(x), counts.to(x)
        sums = member @ self._power(pairwise_distances(x, x)) @ member.t()
        within = sums.diagonal() / (size * (size - 1))
        between = 4 * sums / (size[:, None] * size)
        weight = member @ weights / size
        a, b = torch.triu_indices(len(size), len(size), offset=1, device=x.device)
        losses = within[a] + within[b] - self.w * between[a, b]
        return losses * (weight[a] + weight[b]) / 2, is_member.int().argmax(dim=1)[a]

    def _power(self, distances: Tensor) -> Tensor:
        return distances if self.k == 1 else distances.pow(self.k)
