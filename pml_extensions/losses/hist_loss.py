"""Hypergraph-induced semantic tuplet loss (HIST)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions.functional.batch_norm import batch_normalized

from .._shared.base_losses import ProxyLoss
from .._shared.checks import non_negative, positive, positive_integer
from .._shared.numerics import unit_vectors


class HISTLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Classification by one Gaussian per class, and by a hypergraph network over the batch.

    .. math::
        L_D = \frac{1}{N} \sum_i -\ln \frac{e^{-\tau d^2(x_i, y_i)}}{\sum_j e^{-\tau d^2(x_i, j)}},
        \qquad d^2(x, j) = \sum_k \frac{(\hat x_k - \hat \mu_{jk})^2}{e^{relu6(v_{jk})}}

    and :math:`\lambda` times the cross-entropy of a two-layer hypergraph network whose hyperedges
    are the classes of the batch: :math:`H_{ij}` is 1 where j is the class of i and
    :math:`e^{-\alpha d^2(x_i, j)}` elsewhere, and each layer multiplies by
    :math:`G = D_v^{-1/2} H D_e^{-1} H^T D_v^{-1/2}`. "Hypergraph-Induced Semantic Tuplet Loss for
    Deep Metric Learning" (CVPR 2022). As in the authors' code, means and embeddings are
    scaled to unit length in d, while the network gets the embeddings without normalisation.

    Both terms are sub-losses with one entry per sample, ``distribution_loss`` and
    ``hypergraph_loss`` (multiplied by lambda). ``proxies`` are the means. The authors train three
    parameter groups with different learning rates: the model, ``proxies`` and ``log_variances``
    (0.1, 0.1 and 0.01 for CUB, Cars and SOP), and ``hypergraph_parameters()`` (5, 10 and 10 times
    the model's). A training batch of one sample has no variance; the network then uses its running
    statistics.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        tau: Multiplies the squared distances (paper: 32; SOP 16); can change by phase.
        alpha: Multiplies the squared distances in the hypergraph (paper: CUB 1.1, Cars 0.9,
            SOP 2); can change by phase.
        hypergraph_weight: lambda, weight of the second term; can change by phase.
        hidden_size: Width of the hidden layer of the network.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler``, ``softmax``, PML's
            ``reducer``, ``weight_init_func`` (for means and log-variances; default: the authors',
            Kaiming normal with fan-out), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {  # noqa: RUF012
        "tau": positive,
        "alpha": positive,
        "hypergraph_weight": non_negative,
    }
    sub_losses = ("distribution_loss", "hypergraph_loss")
    tau: float
    alpha: float
    hypergraph_weight: float

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
        hidden_size = positive_integer("hidden_size", hidden_size)
        self.log_variances = torch.nn.Parameter(torch.empty_like(self.proxies))
        self.weight_init_func(self.log_variances)
        self.embed = torch.nn.Linear(self.embedding_size, hidden_size)
        self.norm = torch.nn.BatchNorm1d(hidden_size)
        self.classify = torch.nn.Linear(hidden_size, self.num_classes)

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation of means and log-variances."""
        return c_f.TorchInitWrapper(torch.nn.init.kaiming_normal_, mode="fan_out")

    def hypergraph_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the hypergraph network, for a separate learning rate."""
        return [p for layer in (self.embed, self.norm, self.classify) for p in layer.parameters()]

    def class_parameters(self) -> tuple[Tensor, ...]:
        """Return means and log-variances of the classes."""
        return self.proxies, self.log_variances

    def logits(self, x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """Return -tau d^2 of all pairs, shape (N, C)."""
        return -self.tau * _squared_distances(x, mean, log_variance)

    def sample_losses(self, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the sub-losses by name, each of shape (N,)."""
        # The last layer's weight and bias have a row for each class, too.
        parameters = (*self.class_parameters(), *self.classify.parameters())
        y, (mean, log_variance, weight, bias) = self.select_classes(embeddings, labels, *parameters)
        distribution = self.softmax.cross_entropy(self.logits, embeddings, (mean, log_variance), y)
        distances = _squared_distances(embeddings, mean[y], log_variance[y])  # (N, N)
        z = self._network(embeddings, self._propagation(distances, y))
        hypergraph = self.softmax.cross_entropy(_linear, z, (weight, bias), y)
        return {
            "distribution_loss": distribution,
            "hypergraph_loss": self.hypergraph_weight * hypergraph,
        }

    def _propagation(self, distances: Tensor, labels: Tensor) -> Tensor:
        """Return G, shape (N, N), from the squared distances of sample i to the class of sample j.

        The incidence is H. A class of n samples has n equal columns, so each column is a hyperedge
        of weight 1/n. The degrees are the diagonals of D_v and D_e.
        """
        same = labels.unsqueeze(1) == labels
        incidence = torch.where(same, 1.0, (-self.alpha * distances).exp())
        edge_weight = 1 / same.sum(dim=0).to(distances)
        sample_degree = incidence @ edge_weight
        edge_degree = incidence.sum(dim=0)
        scaled = incidence * sample_degree.rsqrt().unsqueeze(1)
        return (scaled * (edge_weight / edge_degree)) @ scaled.t()

    def _network(self, embeddings: Tensor, propagation: Tensor) -> Tensor:
        """Return the inputs of the last layer, with one more column that multiplies its bias.

        G (h W + b) equals (G h) W plus b times the row sums of G, which are this column.
        """
        hidden = propagation @ F.linear(
            embeddings, self.embed.weight.to(embeddings), self.embed.bias.to(embeddings)
        )
        hidden = propagation @ F.leaky_relu(self._batch_norm(hidden), 0.1)
        return torch.cat((hidden, propagation.sum(dim=1, keepdim=True)), dim=1)

    def _batch_norm(self, x: Tensor) -> Tensor:
        """Apply the network's batch normalisation, which also takes a batch of one sample."""
        norm = self.norm
        # In general torch allows None for these.
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        x = batch_normalized(
            x, norm.running_mean, norm.running_var, self.training, norm.momentum, norm.eps
        )
        return x * norm.weight.to(x) + norm.bias.to(x)


def _squared_distances(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return d^2 of all pairs, shape (N, C), by two matrix products: the expanded square."""
    x, mean, precision = unit_vectors(x), unit_vectors(mean), (-F.relu6(log_variance)).exp()
    weighted = mean * precision
    return x.square() @ precision.t() - 2 * x @ weighted.t() + (mean * weighted).sum(dim=1)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return W h + g b, shape (N, C), where g is the last column of x and h the other columns."""
    return x[:, :-1] @ weight.t() + x[:, -1:] * bias
