"""Hypergraph-induced semantic tuplet loss (HIST)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions import _checks
from pml_extensions.functional import (
    DotProduct,
    View,
    batch_normalized,
    cross_entropy,
    unit_vectors,
)
from pml_extensions.losses._proxy import ProxyLoss, Rows


class HISTLoss(ProxyLoss):
    r"""Classification by a Gaussian of each class, and by a hypergraph network over the batch.

    .. math::
        L_D = \frac{1}{N} \sum_i -\ln \frac{e^{-\tau d^2(x_i, y_i)}}{\sum_j e^{-\tau d^2(x_i, j)}},
        \qquad d^2(x, j) = \sum_k \frac{(\hat x_k - \hat \mu_{jk})^2}{e^{relu6(v_{jk})}}

    and :math:`\lambda` times the cross-entropy of a two-layer hypergraph network whose hyperedges
    are the classes of the batch: :math:`H_{ij}` is 1 where j is the class of i and
    :math:`e^{-\alpha d^2(x_i, j)}` elsewhere, each layer multiplies by
    :math:`G = D_v^{-1/2} H D_e^{-1} H^T D_v^{-1/2}`. "Hypergraph-Induced Semantic Tuplet Loss for
    Deep Metric Learning" (CVPR 2022), with what only the authors' code says: mean and embedding at
    unit length in d, the embedding as it is in the network.

    The reducer gets both terms as sub-losses of each sample, ``distribution_loss`` and
    ``hypergraph_loss`` (with lambda). ``proxies`` are the means. The authors train three groups
    with learning rates of their own: the model, ``proxies`` and ``log_variances`` (0.1, 0.1 and
    0.01 for CUB, Cars and SOP), and ``hypergraph_parameters()`` (5, 10 and 10 times the model's).
    A training batch of one has no variance; the network then uses its running statistics.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        tau: Multiplies the squared distances (paper: 32; SOP 16); can change by phase.
        alpha: Multiplies them in the hypergraph (paper: CUB 1.1, Cars 0.9, SOP 2); can change by
            phase.
        hypergraph_weight: lambda, weight of the second term; can change by phase.
        hidden_size: Width of the network.
        **kwargs: Those of :class:`ProxyLoss`: ``class_sample_ratio``, ``class_chunk_size``,
            ``sparse_gradients``, PML's ``reducer``, ``weight_init_func`` (of means and
            log-variances; default: Kaiming normal over classes, as the authors), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {  # noqa: RUF012
        "tau": _checks.positive,
        "alpha": _checks.positive,
        "hypergraph_weight": _checks.non_negative,
    }
    similarity = DotProduct()
    sub_losses = ("distribution_loss", "hypergraph_loss")
    tau: Tensor
    alpha: Tensor
    hypergraph_weight: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        tau: float = 32.0,
        alpha: float = 0.9,
        hypergraph_weight: float = 1.0,
        hidden_size: int = 512,
        **kwargs: Any,
    ) -> None:
        phase = {"tau": tau, "alpha": alpha, "hypergraph_weight": hypergraph_weight}
        super().__init__(num_classes, embedding_size, phase, **kwargs)
        hidden_size = _checks.positive_integer("hidden_size", hidden_size)
        self.log_variances = torch.nn.Parameter(torch.empty_like(self.proxies))
        self.weight_init_func(self.log_variances)
        self.embed = torch.nn.Linear(self.embedding_size, hidden_size)
        self.norm = torch.nn.BatchNorm1d(hidden_size)
        self.classify = torch.nn.Linear(hidden_size, self.num_classes)

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation of means and log-variances."""
        return c_f.TorchInitWrapper(torch.nn.init.kaiming_normal_, mode="fan_out")

    def hypergraph_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the hypergraph network, for a learning rate of their own."""
        return [p for m in (self.embed, self.norm, self.classify) for p in m.parameters()]

    def _logits(self, embeddings: Tensor, rows: Rows) -> Tensor:
        return self.tau * self._compared(embeddings) @ self._distributions(rows).t()

    def _losses(self, embeddings: Tensor, labels: Tensor, rows: Rows) -> dict[str, Tensor]:
        x = self._compared(embeddings)
        view = View(self.similarity, self.tau)
        sums = self._class_sums(x, self._distributions(rows), labels, view)
        # Not the diagonal of the distances below: torch's inductor loses the gradient of that.
        own = self.tau * self.similarity.paired(x, sums.own_proxies)
        propagation = self._propagation(-x @ sums.own_proxies.t(), labels)
        return {
            "distribution_loss": cross_entropy(own, sums.others[0]),
            "hypergraph_loss": self.hypergraph_weight
            * self._hypergraph_losses(embeddings, labels, propagation, rows),
        }

    def _compared(self, embeddings: Tensor) -> Tensor:
        """Return (x^2, x, 1), whose product with a row of ``_distributions`` is -d^2."""
        x = unit_vectors(embeddings)
        return torch.cat((x.square(), x, torch.ones_like(x[:, :1])), dim=1)

    def _distributions(self, rows: Rows) -> Tensor:
        mean, precision = (
            unit_vectors(rows(self.proxies)),
            (-F.relu6(rows(self.log_variances))).exp(),
        )
        constant = (mean.square() * precision).sum(dim=1, keepdim=True)
        return torch.cat((-precision, 2 * mean * precision, -constant), dim=1)

    def _propagation(self, distances: Tensor, labels: Tensor) -> Tensor:
        """Return G, shape (N, N), from the squared distances of samples to each other's class.

        A class of n samples stands in n columns, so each of them weighs 1/n as a hyperedge.
        """
        same = labels.unsqueeze(1) == labels
        incidence = torch.where(same, 1.0, (-self.alpha * distances).exp())
        edge_weight = 1 / same.sum(dim=0).to(distances)
        sample_degree = incidence @ edge_weight
        edge_degree = incidence.sum(dim=0)
        scaled = incidence * sample_degree.rsqrt().unsqueeze(1)
        return (scaled * (edge_weight / edge_degree)) @ scaled.t()

    def _hypergraph_losses(
        self, embeddings: Tensor, labels: Tensor, propagation: Tensor, rows: Rows
    ) -> Tensor:
        hidden = propagation @ _applied(self.embed, embeddings)
        hidden = propagation @ F.leaky_relu(self._batch_norm(hidden), 0.1)
        # The bias is propagated as well: a column of ones beside the hidden values carries it.
        x = torch.cat((hidden, propagation.sum(dim=1, keepdim=True)), dim=1)
        weight, bias = rows(self.classify.weight), rows(self.classify.bias)
        classes = torch.cat((weight, bias.unsqueeze(1)), dim=1)
        sums = self._class_sums(x, classes, labels, View(self.similarity))
        return cross_entropy(self.similarity.paired(x, sums.own_proxies), sums.others[0])

    def _batch_norm(self, x: Tensor) -> Tensor:
        norm = self.norm
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        x = batch_normalized(
            x, norm.running_mean, norm.running_var, self.training, norm.momentum, norm.eps
        )
        return x * norm.weight.to(x) + norm.bias.to(x)


def _applied(linear: torch.nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, linear.weight.to(x), linear.bias.to(x))
