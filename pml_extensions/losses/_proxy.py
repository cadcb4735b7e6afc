"""What the losses with one proxy a class share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions.functional import at_least_float32, without_autocast
from pml_extensions.losses import _checks
from pml_extensions.losses._phase import PhasedLoss


class ProxyLoss(WeightRegularizerMixin, PhasedLoss):
    """A PML loss with a parameter ``proxies`` of shape (num_classes, embedding_size).

    A subclass gives ``phase`` (its changeable values), ``_logits`` and ``_losses``. These two get
    float32 or float64 tensors and run without autocast, and the proxies never change their dtype.
    """

    proxies: torch.nn.Parameter

    def __init__(
        self, num_classes: int, embedding_size: int, phase: Mapping[str, float], **kwargs: Any
    ) -> None:
        _checks.fixed_distance(type(self).__name__, kwargs)
        super().__init__(**kwargs)
        self.num_classes = _checks.positive_integer("num_classes", num_classes)
        self.embedding_size = _checks.positive_integer("embedding_size", embedding_size)
        self._register_phase(phase)
        self.proxies = torch.nn.Parameter(torch.empty(self.num_classes, self.embedding_size))
        self.weight_init_func(self.proxies)
        self.add_to_recordable_attributes(
            list_of_names=["num_classes", "embedding_size", *self.phase_checks], is_stat=False
        )

    def _logits(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        """Return the logits, shape (N, C)."""
        raise NotImplementedError

    def _losses(self, embeddings: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each sample, shape (N,)."""
        raise NotImplementedError

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
            return self._logits(x, self.proxies.to(x))

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
        labels = _checks.class_labels(labels, self.num_classes)
        with without_autocast(embeddings):
            x = at_least_float32(embeddings)
            losses = self._losses(x, self.proxies.to(x), labels)
            weights = lmu.convert_to_weights(indices_tuple, labels, dtype=losses.dtype)
            losses = losses * weights
        if len(losses) == 0:
            # The mean of nothing is NaN; PML's zero loss keeps the graph.
            return self.zero_losses()
        loss_dict = {
            "loss": {
                "losses": losses,
                "indices": c_f.torch_arange_from_size(embeddings),
                "reduction_type": "element",
            }
        }
        self.add_weight_regularization_to_loss_dict(loss_dict, self.proxies)
        return loss_dict
