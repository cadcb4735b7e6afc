"""What the losses with one proxy a class share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions import _checks
from pml_extensions.functional import at_least_float32, unit_vectors, without_autocast
from pml_extensions.functional.class_sampling import gather_rows
from pml_extensions.functional.class_sums import ClassSums, View, class_sums
from pml_extensions.functional.similarities import Similarity, similarity_matrix
from pml_extensions.functional.softmax import cross_entropy
from pml_extensions.losses._class_sampler import ClassSampler, RatioOf
from pml_extensions.losses._phase import PhasedLoss

#: Gives the rows of a class-wise parameter that belong to the classes of this step.
Rows = Callable[[Tensor], Tensor]


class ProxyLoss(WeightRegularizerMixin, PhasedLoss):
    """A PML loss with a parameter ``proxies`` of shape (num_classes, embedding_size).

    A subclass names its ``similarity``, its changeable values (``phase_checks``) and, where they
    differ from a plain softmax over similarities, ``_compared`` and ``_losses``. These get float32
    or float64 tensors and run without autocast, and no parameter ever changes its dtype.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        phase: Values by name, see :class:`PhasedLoss`.
        class_sample_ratio: Share of classes that a training step compares with; 1 takes all. The
            classes of the batch are always kept, the others are redrawn for each step, and
            evaluation mode takes all classes. See :class:`ClassSampler`.
        class_sample_ratio_of: ``"all"``: the share counts all classes; ``"negatives"``: those
            that are not in the batch.
        class_chunk_size: Classes taken at a time. None takes all at once, which is fastest while
            batch x classes is small; with a number (2,048 is a good one) memory does not grow with
            batch x classes, at the price of one more matrix product.
        sparse_gradients: Give class-wise parameters sparse gradients that hold the sampled rows
            only, for SGD without weight decay, SparseAdam or Adagrad; needs a
            ``class_sample_ratio`` below 1.
        check_labels: True raises ValueError for a label out of range, on a GPU by waiting for it.
            None does so on the CPU and leaves it to an assertion on the device elsewhere. False
            checks nothing.
        **kwargs: PML's ``reducer``, ``weight_init_func``, ``weight_regularizer``,
            ``embedding_regularizer`` and their weights.

    Raises:
        ValueError: An argument is out of range.
    """

    similarity: Similarity
    sub_losses: ClassVar[tuple[str, ...]] = ("loss",)
    proxies: torch.nn.Parameter

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        phase: Mapping[str, float],
        class_sample_ratio: float = 1.0,
        class_sample_ratio_of: RatioOf = "all",
        class_chunk_size: int | None = None,
        sparse_gradients: bool = False,
        check_labels: bool | None = None,
        **kwargs: Any,
    ) -> None:
        _checks.fixed_distance(type(self).__name__, kwargs)
        super().__init__(**kwargs)
        self.num_classes = _checks.positive_integer("num_classes", num_classes)
        self.embedding_size = _checks.positive_integer("embedding_size", embedding_size)
        self._register_phase(phase)
        self.proxies = torch.nn.Parameter(torch.empty(self.num_classes, self.embedding_size))
        self.weight_init_func(self.proxies)
        self.class_chunk_size = (
            None
            if class_chunk_size is None
            else _checks.positive_integer("class_chunk_size", class_chunk_size)
        )
        self.check_labels = _checks.one_of("check_labels", check_labels, (None, True, False))
        self.class_sample_ratio = _checks.share("class_sample_ratio", class_sample_ratio)
        self.sparse_gradients = _checks.one_of("sparse_gradients", sparse_gradients, (True, False))
        self.class_sampler = (
            ClassSampler(self.num_classes, self.class_sample_ratio, class_sample_ratio_of)
            if self.class_sample_ratio < 1
            else None
        )
        if self.sparse_gradients and self.class_sampler is None:
            raise ValueError(
                "sparse_gradients=True needs a class_sample_ratio below 1: with all classes every "
                "row has a gradient."
            )
        self.add_to_recordable_attributes(
            list_of_names=["num_classes", "embedding_size", *self.phase_checks], is_stat=False
        )

    def _compared(self, embeddings: Tensor) -> Tensor:
        """Return what is compared with the proxies, shape (N, D)."""
        return embeddings

    def _logits(self, embeddings: Tensor, rows: Rows) -> Tensor:
        """Return the logits of the softmax, shape (N, C)."""
        return similarity_matrix(self.similarity, self._compared(embeddings), rows(self.proxies))

    def _losses(self, embeddings: Tensor, labels: Tensor, rows: Rows) -> dict[str, Tensor]:
        """Return each sub-loss of each sample, shape (N,).

        Args:
            embeddings: Shape (N, D).
            labels: Position of each sample's class among those of this step, shape (N,).
            rows: Gives the rows of a class-wise parameter for the classes of this step.
        """
        x = self._compared(embeddings)
        sums = self._class_sums(x, rows(self.proxies), labels, View(self.similarity))
        own = self.similarity.paired(x, sums.own_proxies)
        return {"loss": cross_entropy(own, sums.others[0])}

    def _class_sums(
        self, x: Tensor, proxies: Tensor, labels: Tensor, *views: View, **kwargs: Any
    ) -> ClassSums:
        return class_sums(x, proxies, labels, views, chunk_size=self.class_chunk_size, **kwargs)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """Return the logits of the softmax: larger is more similar.

        Args:
            embeddings: Shape (N, embedding_size).

        Returns:
            Shape (N, num_classes), float32 (float64 if the embeddings are).
        """
        _checks.embedding_shape(embeddings, self.embedding_size)
        with without_autocast(embeddings):
            x = at_least_float32(embeddings)
            return self._logits(x, lambda parameter: parameter.to(x))

    @torch.no_grad()
    def set_proxies_to_class_means(self, embeddings: Tensor, labels: Tensor) -> None:
        """Start the proxies at the unit-length mean of each class (paper 003's code, for SOP).

        Args:
            embeddings: Of the training images before training, shape (M, embedding_size).
            labels: Shape (M,); classes without a sample keep their proxy.

        Raises:
            ValueError: A shape or a label is out of range.
        """
        _checks.embedding_shape(embeddings, self.embedding_size)
        labels = _checks.class_labels(labels, self.num_classes, check=True).to(self.proxies.device)
        x = embeddings.to(self.proxies)
        sums = torch.zeros_like(self.proxies).index_add_(0, labels, x)
        seen = torch.bincount(labels, minlength=self.num_classes) > 0
        self.proxies.copy_(torch.where(seen.unsqueeze(1), unit_vectors(sums), self.proxies))

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
        _checks.embedding_shape(embeddings, self.embedding_size)
        labels = _checks.class_labels(labels, self.num_classes, self.check_labels)
        kept = self.class_sampler(labels) if self.class_sampler and self.training else None
        positions = labels if kept is None else torch.searchsorted(kept, labels)
        losses = self._losses(embeddings, positions, partial(self._rows, embeddings, kept))
        weights = lmu.convert_to_weights(indices_tuple, labels, dtype=embeddings.dtype)
        if len(embeddings) == 0:
            # The mean of nothing is NaN; PML's zero loss keeps the graph.
            return self.zero_losses()
        indices = c_f.torch_arange_from_size(embeddings)
        loss_dict = {
            name: {"losses": value * weights, "indices": indices, "reduction_type": "element"}
            for name, value in losses.items()
        }
        self.add_weight_regularization_to_loss_dict(loss_dict, self.proxies)
        return loss_dict

    def _rows(self, x: Tensor, kept: Tensor | None, parameter: Tensor) -> Tensor:
        if kept is None:
            return parameter.to(x)
        return gather_rows(parameter, kept, self.sparse_gradients).to(x)

    def _sub_loss_names(self) -> list[str]:
        return list(self.sub_losses)
