"""Stop-gradient softmax loss (SGSL)."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions.functional import (
    cross_entropy,
    logsumexp_without_own_class,
    smoothing_weights,
    unit_vectors,
)
from pml_extensions.functional.softmax import SmoothingConvention
from pml_extensions.losses import _checks
from pml_extensions.losses._proxy import ProxyLoss

JoinMode = Literal["per_batch", "latch", "always"]


class StopGradientSoftmaxLoss(ProxyLoss):
    r"""Softmax cross-entropy joined by a cosine loss that sees the class weights as constants.

    .. math::
        L = CE_\epsilon(W f) + \beta \, \frac{1}{N} \sum_i \mathrm{softplus}\Big(
        \frac{1}{\gamma} \ln \sum_{j \ne y_i} e^{\gamma \cos(\bar W_j, f_i)}
        - \cos(\bar W_{y_i}, f_i) \Big)

    where :math:`\bar W` is W without gradient and the first term uses neither normalisation nor
    bias. "Stop-Gradient Softmax Loss for Deep Metric Learning" (AAAI 2023), Eq. 6 (second
    term), Eq. 7 and 10 (sum). The second term joins only while the first one, averaged over the
    batch and with its label smoothing, is at most ``join_threshold``; it starts near
    ln(num_classes). When torch.distributed runs, training averages that value over all ranks, so
    that they agree.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        gamma: Sharpness of the soft maximum over the other classes; can change by phase.
        beta: Weight of the second term; can change by phase.
        label_smoothing: Target probability eps taken from the own class in the first term. The
            authors' code has 0.4 for CUB and Cars and 0.1 for SOP and In-Shop.
        smoothing_convention: ``"official"`` gives each other class eps/(C-1), ``"torch"`` gives
            every class eps/C.
        join_threshold: Largest first term at which the second joins; None: always.
        join_mode: ``"per_batch"`` decides anew for each batch (the authors' code), ``"latch"``
            stays joined after the first time in training, ``"always"`` never waits.
        **kwargs: PML's ``reducer``, ``weight_init_func`` (default: normal, std 0.001),
            ``weight_regularizer``, ``embedding_regularizer`` and their weights.

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"gamma": _checks.positive, "beta": _checks.non_negative}  # noqa: RUF012
    gamma: Tensor
    beta: Tensor
    joined: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        gamma: float = 30.0,
        beta: float = 1.0,
        label_smoothing: float = 0.1,
        smoothing_convention: SmoothingConvention = "official",
        join_threshold: float | None = 3.0,
        join_mode: JoinMode = "per_batch",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, embedding_size, {"gamma": gamma, "beta": beta}, **kwargs)
        self.label_smoothing = _checks.fraction("label_smoothing", label_smoothing)
        self.smoothing_convention = _checks.one_of(
            "smoothing_convention", smoothing_convention, ("official", "torch")
        )
        self.join_mode = _checks.one_of("join_mode", join_mode, ("per_batch", "latch", "always"))
        self.join_threshold = (
            math.inf
            if join_threshold is None
            else _checks.positive_or_infinite("join_threshold", join_threshold)
        )
        if join_mode == "latch":
            self.register_buffer("joined", torch.tensor(False))
        self._warn_if_never_joined()
        self.add_to_recordable_attributes(
            list_of_names=["label_smoothing", "join_threshold"], is_stat=False
        )

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation; zeros would leave the cosines without direction."""
        return c_f.TorchInitWrapper(torch.nn.init.normal_, std=0.001)

    def _target(self) -> tuple[float, float]:
        return smoothing_weights(self.num_classes, self.label_smoothing, self.smoothing_convention)

    def _warn_if_never_joined(self) -> None:
        own, other = self._target()
        entropy = -sum(
            count * p * math.log(p) for count, p in ((1, own), (self.num_classes - 1, other)) if p
        )
        if self.join_mode != "always" and entropy >= self.join_threshold:
            warnings.warn(
                f"label_smoothing={self.label_smoothing} keeps the softmax term above "
                f"{entropy:.3f}, so with join_threshold={self.join_threshold} the stop-gradient "
                "term never joins; raise join_threshold or lower label_smoothing.",
                stacklevel=3,
            )

    def _logits(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        return embeddings @ proxies.t()

    def _losses(self, embeddings: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        softmax = cross_entropy(self._logits(embeddings, proxies), labels, *self._target())
        cosines = unit_vectors(embeddings) @ unit_vectors(proxies.detach()).t()
        own = cosines.gather(1, labels.unsqueeze(1)).squeeze(1)
        others = logsumexp_without_own_class(cosines, labels, self.gamma)
        # -logsigmoid(-x) is softplus(x) to the last digit; torch's softplus is linear above 20.
        stop_gradient = -F.logsigmoid(own - others)
        gate = self._gate(softmax.detach())
        return softmax + torch.where(gate, self.beta * stop_gradient, 0.0)

    @torch.no_grad()
    def _gate(self, softmax: Tensor) -> Tensor:
        """Return whether the stop-gradient term joins, as a tensor so that no device waits."""
        if self.join_mode == "always":
            return torch.ones((), dtype=torch.bool, device=softmax.device)
        now = self._mean_over_ranks(softmax) <= self.join_threshold
        if self.join_mode == "per_batch":
            return now
        if self.training:
            self.joined.logical_or_(now.to(self.joined.device))
        return self.joined.to(now.device)

    def _mean_over_ranks(self, values: Tensor) -> Tensor:
        total = torch.stack((values.sum(), values.new_tensor(float(len(values)))))
        # Only in training: a loss may be evaluated on one rank, where the others never answer.
        if self.training and torch.distributed.is_available() and _several_ranks():
            torch.distributed.all_reduce(total)
        return total[0] / total[1]


def _several_ranks() -> bool:
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
