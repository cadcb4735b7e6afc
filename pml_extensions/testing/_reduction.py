"""Checks of a loss with PML's reducers, regularizers, miners and MultipleLosses."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers, regularizers
from torch import Tensor

from pml_extensions.testing._case import LossCase, call

#: Number of index tensors for each of PML's reduction types; 0 means a tensor, not a tuple.
INDICES = {"element": 0, "pos_pair": 2, "neg_pair": 2, "triplet": 3}


class ReductionChecks(LossCase):
    """The loss dictionary is valid for reducers, and each option of PML has an effect."""

    def test_sub_losses_are_declared(self) -> None:
        """``sub_loss_names`` lists all sub-losses; PML silently ignores the reducer for others.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: PML ignores the reducer for sub-losses that are not listed.
        """
        x, labels = self.batch()
        raw = self.raw(x, labels)
        declared = self.make_loss().sub_loss_names()
        assert sorted(raw) == sorted(declared)
        for name, sub_loss in raw.items():
            _check_indices(name, sub_loss, len(x))

    def test_reducers_have_entries_to_act_on(self) -> None:
        """At least one sub-loss has an entry for each sample, pair or triplet.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: reducer= and miners have no effect.
        """
        kinds = {sub_loss["reduction_type"] for sub_loss in self.raw(*self.batch()).values()}
        assert kinds - {"already_reduced"}, "the loss reduces itself, so reducers have no effect"

    @pytest.mark.parametrize("name", ["mean", "sum", "threshold", "per_anchor", "class_weighted"])
    def test_reducers_see_the_entries(self, name: str) -> None:
        """The value with each of PML's reducers equals that of plain loops over the entries.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: reducer= does not do what it says.
        """
        x, labels = self.batch()
        raw = self.raw(x, labels)
        if name == "per_anchor" and any(s["reduction_type"] == "triplet" for s in raw.values()):
            pytest.skip("PML's PerAnchorReducer refuses triplets")
        entries = [v for s in raw.values() if _has_entries(s) for v in s["losses"].tolist()]
        low = median(entries) if entries else 0.0
        weights = [0.5 + 1.5 * c / self.num_classes for c in range(self.num_classes)]
        # Each reducer, and a function that computes its value from entries v and their anchors a.
        by_name: dict[str, tuple[Any, Callable[[list[float], list[int]], float]]] = {
            "mean": (reducers.MeanReducer(), lambda v, a: _mean(v)),
            "sum": (reducers.SumReducer(), lambda v, a: sum(v)),
            "threshold": (
                reducers.ThresholdReducer(low=low),
                lambda v, a: _mean([e for e in v if e > low]),
            ),
            "per_anchor": (reducers.PerAnchorReducer(), lambda v, a: _per_anchor(v, a, len(x))),
            "class_weighted": (
                reducers.ClassWeightedReducer(torch.tensor(weights, device=x.device)),
                lambda v, a: _mean(
                    [e * weights[int(labels[i])] for e, i in zip(v, a, strict=True)]
                ),
            ),
        }
        reducer, reference = by_name[name]
        result = self.value(x, labels, reducer=reducer)
        expected = sum(_expected_value(sub_loss, reference, name) for sub_loss in raw.values())
        self.same(result.detach().float().cpu(), torch.tensor(float(expected)))
        result.backward()

    def test_embedding_regularizer_is_added(self) -> None:
        """``embedding_regularizer`` adds its value times ``embedding_reg_weight``.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: embedding_regularizer= has no effect.
        """
        x, labels = self.batch()
        regularizer = regularizers.LpRegularizer()
        regularized = self.value(
            x, labels, embedding_regularizer=regularizer, embedding_reg_weight=0.3
        )
        self.same(regularized, self.value(x, labels) + 0.3 * x.norm(dim=1).mean())

    def test_works_with_a_miner_and_in_multiple_losses(self) -> None:
        """The loss accepts mined pairs, and MultipleLosses returns the weighted sum.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: miners or MultipleLosses cannot be used.
        """
        x, labels = self.batch()
        mined = miners.MultiSimilarityMiner()(x.detach(), labels)
        single = self.value(x, labels, mined)
        assert single.isfinite()
        both = pml_losses.MultipleLosses(
            [self.seeded_loss(), pml_losses.ContrastiveLoss()], weights=[2, 1]
        )
        other = pml_losses.ContrastiveLoss()(x, labels, mined)
        self.same(call(both, x, labels, mined), 2 * single + other)


def _has_entries(sub_loss: dict[str, Any]) -> bool:
    return sub_loss["reduction_type"] in INDICES


def _check_indices(name: str, sub_loss: dict[str, Any], batch_size: int) -> None:
    """Assert that reduction type and indices of a sub-loss are valid for PML."""
    losses, kind = sub_loss["losses"], sub_loss["reduction_type"]
    if kind == "already_reduced":  # one number, which PML's zero loss has as an int
        assert not isinstance(losses, Tensor) or losses.numel() == 1
        return
    assert kind in INDICES, f"{name} has the reduction type {kind!r}, which PML does not know"
    indices = sub_loss["indices"]
    if INDICES[kind]:  # a tuple of as many tensors
        assert len(indices) == INDICES[kind]
    else:
        indices = (indices,)
    for index in indices:
        assert index.shape == losses.shape, f"{name} has {losses.shape} entries, not {index.shape}"
        assert not index.is_floating_point()
        if len(index):
            assert index.min() >= 0
            assert index.max() < batch_size


def _expected_value(
    sub_loss: dict[str, Any], reference: Callable[[list[float], list[int]], float], name: str
) -> float:
    """Return the value that the reducer ``name`` should give for a sub-loss.

    ``reference`` computes it from the entries and their anchors.
    """
    if not _has_entries(sub_loss):
        return float(sub_loss["losses"])
    kind, indices = sub_loss["reduction_type"], sub_loss["indices"]
    values = sub_loss["losses"].tolist()
    anchors = (indices[0] if INDICES[kind] else indices).tolist()
    # With an entry for each sample, PerAnchorReducer is a plain mean.
    if name == "per_anchor" and kind == "element":
        return _mean(values)
    return reference(values, anchors)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _per_anchor(values: list[float], anchors: list[int], batch_size: int) -> float:
    """Return the mean over all samples of the mean over the entries of each anchor."""
    return _mean(
        [
            _mean([v for v, anchor in zip(values, anchors, strict=True) if anchor == sample])
            for sample in range(batch_size)
        ]
    )
