"""Losses of the papers' tables that are nobody's contribution there, and that PML lacks.

Named in a YAML by their import path, e.g. ``reality_check.baseline_losses.LinearSoftmaxLoss``.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor


class LinearSoftmaxLoss(torch.nn.Module):
    r"""Cross-entropy of a linear classifier on the embeddings: nothing is normalised.

    .. math:: L = \frac{1}{N} \sum_i -\ln \mathrm{softmax}(W f_i + b)_{y_i}

    The baseline "SM" of "Heated-Up Softmax Embedding", Tables 1 to 5. Computed in float32, with
    the initialisation of torch's linear layer.

    Args:
        num_classes: C.
        embedding_size: D.
        bias: whether there is b.
        label_smoothing: torch's: each class gets a share of label_smoothing / C.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        bias: bool = True,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.classify = torch.nn.Linear(embedding_size, num_classes, bias=bias)
        self.label_smoothing = label_smoothing

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Return the mean over the batch; embeddings (N, D), labels (N,); no miner has a say."""
        logits = self.classify(embeddings.float())
        return torch.nn.functional.cross_entropy(
            logits, labels, label_smoothing=self.label_smoothing
        )


class RingLoss(BaseMetricLossFunction):
    r"""Pulls the lengths of the embeddings towards a learned radius.

    .. math:: L = \frac{1}{2N} \sum_i (\|f_i\| - R)^2

    "Stop-Gradient Softmax Loss", Eq. 4, after "Ring loss: Convex feature normalization for face
    recognition". Its weight lambda is that of the sum it stands in. R starts at the mean length in
    the first training batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.radius = torch.nn.Parameter(torch.tensor(-1.0))  # below 0: not yet known

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict[str, dict[str, object]]:
        """Return PML's loss dictionary, an entry a sample."""
        lengths = embeddings.float().norm(dim=1)
        with torch.no_grad():
            self.radius.copy_(torch.where(self.radius < 0, lengths.mean(), self.radius))
        losses = 0.5 * (lengths - self.radius).square()
        indices = torch.arange(len(losses), device=losses.device)
        return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}


class UniformByWidth:
    """Initialises proxies (C, D) uniformly in +-1/sqrt(D), as a linear layer of torch.

    Only the direction of a normalised proxy matters, but its length divides its gradient. The
    authors of "Classification is a Strong Baseline for Deep Metric Learning" start like this.
    """

    def __call__(self, proxies: Tensor) -> None:
        bound = proxies.shape[1] ** -0.5
        torch.nn.init.uniform_(proxies, -bound, bound)
