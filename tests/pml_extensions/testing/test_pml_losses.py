"""PML's own losses in the contracts: what they keep, and what they are known not to."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pytorch_metric_learning.losses import (
    ContrastiveLoss,
    NormalizedSoftmaxLoss,
    NPairsLoss,
    TripletMarginLoss,
)
from torch import Tensor

from pml_extensions.testing import LossContract, ProxyLossContract

LOW_PRECISION = "test_low_precision_embeddings_are_computed_in_float32"
#: The distances of pairs and triplets.
DISTANCES = {
    "test_a_nan_embedding_shows_in_the_loss": "the reducer averages what is above 0, not NaN",
    f"{LOW_PRECISION}[float16]": "the value is float16",
    f"{LOW_PRECISION}[bfloat16]": "torch.cdist has no bfloat16 on CPUs",
    "test_an_optimizer_steps_after_any_dtype[bfloat16]": "torch.cdist has no bfloat16 on CPUs",
    "test_compiling_changes_nothing": "PML branches on the number of pairs",
}


class PMLContract(LossContract):
    compile_backend = "eager"
    fast_gradcheck = True

    @pytest.mark.slow
    def test_compiling_changes_nothing(self) -> None:
        super().test_compiling_changes_nothing()


class TestContrastive(PMLContract):
    supports_ref_emb = True
    known_failures: ClassVar = DISTANCES

    def make_loss(self, **kwargs: Any) -> Any:
        return ContrastiveLoss(**kwargs)


class TestTripletMargin(PMLContract):
    supports_ref_emb = True
    known_failures: ClassVar = DISTANCES

    def make_loss(self, **kwargs: Any) -> Any:
        return TripletMarginLoss(triplets_per_anchor="all", **kwargs)


class TestNPairs(PMLContract):
    exempt: ClassVar = {
        "test_order_of_samples_does_not_matter": "a class's first pair in the batch counts"
    }
    known_failures: ClassVar = {
        LOW_PRECISION: "the value has the type of the embeddings",
        "test_autocast_changes_nothing": "the products are computed in the type of autocast",
        "test_compiling_changes_nothing": "PML goes through NumPy",
    }

    def make_loss(self, **kwargs: Any) -> Any:
        return NPairsLoss(**kwargs)


class TestNormalizedSoftmax(PMLContract, ProxyLossContract):
    known_failures: ClassVar = {
        LOW_PRECISION: "W takes the type of the embeddings",
        "test_an_optimizer_steps_after_any_dtype[bfloat16]": "W takes the type of the embeddings",
        "test_an_optimizer_steps_after_any_dtype[float16]": "W takes the type of the embeddings",
        "test_an_optimizer_steps_after_any_dtype[float64]": "W takes the type of the embeddings",
        "test_autocast_changes_nothing": "the products are computed in the type of autocast",
        "test_logits_are_float32_under_autocast": "they have the type of autocast",
        "test_degenerate_batches_are_finite[empty]": "the mean of nothing is NaN",
        "test_labels_may_be_int32": "PyTorch's cross-entropy needs int64",
        "test_labels_out_of_range_are_refused[minus_100]": "PyTorch's cross-entropy ignores -100",
        "test_sizes_are_recorded": "num_classes is recorded and never set",
    }

    def make_loss(self, **kwargs: Any) -> Any:
        return NormalizedSoftmaxLoss(5, 7, **kwargs)

    def proxies(self, loss: Any) -> Tensor:
        proxies: Tensor = loss.W.t()
        return proxies
