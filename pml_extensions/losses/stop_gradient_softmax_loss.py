"""Stop-gradient softmax loss (SGSL)."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from .._shared.base_losses import ProxyLoss
from .._shared.checks import fraction, non_negative, one_of, positive, positive_or_infinite
from .._shared.numerics import (
    Fused,
    inverse_lengths,
    plain_unit_vectors,
    second_derivatives_from,
    softplus,
    without_autocast,
    world_size,
)

JoinMode = Literal["per_batch", "latch", "always"]
SmoothingConvention = Literal["official", "torch"]


class StopGradientSoftmaxLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Softmax cross-entropy plus a cosine loss without gradient for the class weights.

    .. math::
        L = CE_\epsilon(W f) + \beta \, \frac{1}{N} \sum_i \mathrm{softplus}\Big(
        \frac{1}{\gamma} \ln \sum_{j \ne y_i} e^{\gamma \cos(\bar W_j, f_i)}
        - \cos(\bar W_{y_i}, f_i) \Big)

    where :math:`\bar W` is W without gradient and the first term uses neither normalisation nor
    bias. "Stop-Gradient Softmax Loss for Deep Metric Learning" (AAAI 2023), Eq. 6 (second
    term), Eq. 7 and 10 (sum). The second term is added only while the first one, averaged over the
    batch and with label smoothing, is at most ``join_threshold``; it starts near ln(num_classes).
    With torch.distributed, training averages that value over all ranks, so that they agree.

    Both terms are sub-losses with one entry per sample, ``softmax_loss`` and ``stop_gradient_loss``
    (multiplied by beta; zero while it is not added), and the loss is their sum. Both are computed
    from one product of embeddings and class weights.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        gamma: Sharpness of the soft maximum over the other classes; can change by phase.
        beta: Weight of the second term; can change by phase.
        label_smoothing: Target probability eps taken from the own class in the first term. The
            authors' code has 0.4 for CUB and Cars and 0.1 for SOP and In-Shop.
        smoothing_convention: ``"official"`` gives each other class eps/(C-1), ``"torch"`` gives
            every class eps/C.
        join_threshold: Largest value of the first term for which the second is added; None always
            adds it.
        join_threshold_from: What is compared with the threshold: ``"zero"`` takes the first term
            (the paper); ``"entropy"`` takes the first term minus its lower bound, the entropy of
            the smoothed labels over the classes of the step, so that one threshold fits any label
            smoothing and number of classes.
        join_mode: ``"per_batch"`` decides for each batch (the authors' code), ``"latch"`` always
            adds the second term once it was added in training, ``"always"`` ignores the threshold.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler`` (label smoothing is then
            distributed over the sampled classes), ``softmax``, PML's ``reducer``,
            ``weight_init_func`` (default: normal, std 0.001), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"gamma": positive, "beta": non_negative}  # noqa: RUF012
    sub_losses = ("softmax_loss", "stop_gradient_loss")
    gamma: float
    beta: float
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
        join_threshold_from: Literal["zero", "entropy"] = "zero",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, embedding_size, {"gamma": gamma, "beta": beta}, **kwargs)
        self.label_smoothing = fraction("label_smoothing", label_smoothing)
        self.smoothing_convention = one_of(
            "smoothing_convention", smoothing_convention, ("official", "torch")
        )
        self.join_mode = one_of("join_mode", join_mode, ("per_batch", "latch", "always"))
        self.join_threshold = (
            math.inf
            if join_threshold is None
            else positive_or_infinite("join_threshold", join_threshold)
        )
        self.join_threshold_from = one_of(
            "join_threshold_from", join_threshold_from, ("zero", "entropy")
        )
        if join_mode == "latch":
            self.register_buffer("joined", torch.tensor(False))
        self._warn_if_never_joined()
        self.add_to_recordable_attributes(
            list_of_names=["label_smoothing", "join_threshold"], is_stat=False
        )

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation (cosines of zero vectors would be undefined)."""
        return c_f.TorchInitWrapper(torch.nn.init.normal_, std=0.001)

    def _target_probabilities(self, num_classes: int) -> tuple[float, float]:
        """Return two target probabilities: of the own class, and of each other class."""
        eps = self.label_smoothing
        if num_classes == 1:
            return 1.0, 0.0
        if self.smoothing_convention == "official":
            return 1 - eps, eps / (num_classes - 1)
        return 1 - eps + eps / num_classes, eps / num_classes

    def _entropy(self, num_classes: int) -> float:
        """Return the entropy of a smoothed label, the lower bound of the first term."""
        p_own, p_other = self._target_probabilities(num_classes)
        return -sum(
            count * p * math.log(p) for count, p in ((1, p_own), (num_classes - 1, p_other)) if p
        )

    def _warn_if_never_joined(self) -> None:
        """Warn if the first term, because of label smoothing, cannot reach the threshold."""
        # The entropy grows with the number of classes, so it is lowest in the smallest step.
        sampler = self.class_sampler
        fewest = sampler.fewest(self.num_classes) if sampler else self.num_classes
        entropy = self._entropy(fewest)
        unreachable = self.join_threshold_from == "zero" and entropy >= self.join_threshold
        if self.join_mode != "always" and unreachable:
            warnings.warn(
                f"label_smoothing={self.label_smoothing} keeps the softmax term above "
                f"{entropy:.3f}, so with join_threshold={self.join_threshold} the stop-gradient "
                "term never joins; raise join_threshold or lower label_smoothing.",
                stacklevel=3,
            )

    def logits(self, f: Tensor, w: Tensor) -> Tensor:
        """Return W f, shape (N, C)."""
        return f @ w.t()

    def _product_and_cosine_logits(self, f: Tensor, w: Tensor) -> Tensor:
        """Return W f and gamma cos(W, f) with W constant, shape (2, N, C), from one product."""
        # gamma as a tensor, because under torch.compile a custom function takes no dynamic float.
        both: Tensor = _ProductAndCosineLogits.apply(f, w, f.new_full((), self.gamma))[0]
        return both

    def sample_losses(self, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the sub-losses by name, each of shape (N,)."""
        y, (w,) = self.select_classes(embeddings, labels, self.proxies)
        sums = self.softmax.sums(self._product_and_cosine_logits, embeddings, (w,), y)
        # The softmaxes of the product W f and of the cosines, which are times gamma.
        (z, cosine), (others, cosine_others) = sums.own, sums.others
        p_own, p_other = self._target_probabilities(len(w))
        # The log-sum-exp z_y + softplus(others - z_y), minus the mean logit under the target.
        softmax = softplus(others - z) + (1 - p_own + p_other) * z - p_other * sums.total[0]
        stop_gradient = self.beta * softplus((cosine_others - cosine) / self.gamma)
        joined = self._is_joined(softmax.detach(), len(w))
        return {
            "softmax_loss": softmax,
            "stop_gradient_loss": torch.where(joined, stop_gradient, 0.0),
        }

    @torch.no_grad()
    def _is_joined(self, softmax: Tensor, num_classes: int) -> Tensor:
        """Return whether to add the second term, as a tensor to avoid a synchronisation."""
        if self.join_mode == "always":
            return torch.ones((), dtype=torch.bool, device=softmax.device)
        lower_bound = self._entropy(num_classes) if self.join_threshold_from == "entropy" else 0.0
        below_threshold = self._mean_over_ranks(softmax) <= self.join_threshold + lower_bound
        if self.join_mode == "per_batch":
            return below_threshold
        if self.training:  # "latch": once joined, joined for ever
            self.joined.logical_or_(below_threshold.to(self.joined.device))
        return self.joined.to(below_threshold.device)

    def _mean_over_ranks(self, values: Tensor) -> Tensor:
        """Return the mean of ``values``; in training, over the batches of all ranks."""
        # new_full is filled on the device; new_tensor would copy and synchronise.
        sum_and_count = torch.stack((values.sum(), values.new_full((), len(values))))
        # Only in training: if one rank evaluates a loss alone, all_reduce would wait for ever.
        if self.training and world_size() > 1:
            torch.distributed.all_reduce(sum_and_count)
        return sum_and_count[0] / sum_and_count[1]


def _plain_logits(f: Tensor, w: Tensor, gamma: Tensor) -> tuple[Tensor]:
    """Return the result of ``_ProductAndCosineLogits`` from plain operations."""
    unit_f, unit_w = (plain_unit_vectors(vectors)[0] for vectors in (f, w.detach()))
    return (torch.stack((f @ w.t(), gamma * unit_f @ unit_w.t())),)


class _ProductAndCosineLogits(Fused):
    """W f and gamma cos(W, f) with W constant, from one product and without copies of logits."""

    @staticmethod
    def forward(f: Tensor, w: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        # gamma / |f| and 1 / |w|, which turn the products z[0] into the scaled cosines z[1].
        scale, inverse_norms = gamma * inverse_lengths(f), inverse_lengths(w).t()
        z = f.new_empty(2, len(f), len(w))
        torch.mm(f, w.t(), out=z[0])
        torch.mul(z[0], inverse_norms, out=z[1]).mul_(scale)
        return z, scale, inverse_norms

    @staticmethod
    @second_derivatives_from(_plain_logits)
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        # For f, a cosine has the gradient of the product over |f| |w|, without its part along f.
        # For w, which is constant in the cosines, only the product has a gradient.
        f, w, _, z, scale, inverse_norms = ctx.saved_tensors
        grad_product, grad_cosine = grads[0]
        radial = (grad_cosine * z[1]).sum(dim=1, keepdim=True) * inverse_lengths(f).square()
        grad = (grad_cosine * inverse_norms).mul_(scale).add_(grad_product)
        with without_autocast(f):
            return (grad @ w).addcmul_(radial, f, value=-1), grad_product.t() @ f, None
