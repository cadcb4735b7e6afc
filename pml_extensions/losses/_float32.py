"""A PML loss that is float32 from its first operation to its reducer."""

from __future__ import annotations

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor

from pml_extensions.functional import without_autocast


class Float32Loss(BaseMetricLossFunction):
    """A PML loss that computes in float32 under autocast and for float16 and bfloat16 embeddings.

    That includes regularisers and reducers: PML adds up sub-losses in the embeddings' dtype.
    float64 stays float64.
    """

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss, reduced by the reducer.

        Args:
            embeddings: Shape (N, D).
            labels: Shape (N,).
            indices_tuple: What a miner returned.
            ref_emb: Embeddings to compare with, shape (M, D); not all losses take them.
            ref_labels: Shape (M,).

        Returns:
            What the reducer returns: a float32 scalar (float64 if the embeddings are) for PML's.
        """
        # PML tells "no reference" by identity, which the cast must not break.
        x = _float32(embeddings)
        if ref_emb is not None:
            ref_emb = x if ref_emb is embeddings else _float32(ref_emb)
        with without_autocast(x):
            loss: Tensor = super().forward(x, labels, indices_tuple, ref_emb, ref_labels)
        return loss


def _float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
