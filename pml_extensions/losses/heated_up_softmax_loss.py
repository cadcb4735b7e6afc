"""Heated-up softmax."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions.functional.batch_norm import batch_normalized

from .._shared.base_losses import ProxyLoss
from .._shared.checks import embedding_shape, fraction, one_of, positive
from .._shared.numerics import at_least_float32, projections, unit_vectors, without_autocast

Normalization = Literal["l2", "bn", "none"]
Bias = Literal[False, "unscaled", "scaled"]


class HeatedUpSoftmaxLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Softmax over scaled cosines, trained with a large scale alpha first and a small one later.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \mathrm{softmax}\big(\alpha \hat W \hat f_i + b\big)_{y_i}

    with the rows of :math:`\hat W` at unit length. "Heated-Up Softmax Embedding", Eq. 1;
    normalisation of the embedding by Eq. 4 (``"l2"``, :math:`\hat f = f / |f|`) or Eq. 7
    (``"bn"``, :math:`\hat f = BN(f) / \sqrt D`). The paper trains at alpha = 16 and then "heats up"
    the embedding: ``heat(alpha=4)``, with a tenth of the learning rate.

    With ``"bn"`` the paper uses the normalised vectors for retrieval; ``get_features`` returns
    them. A training batch of fewer than two samples has no variance and is normalised with the
    running statistics.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        alpha: Multiplies the cosines (the inverse of the paper's T); can change by phase.
        bias: False means none. ``"unscaled"``: b is not multiplied by alpha (the authors' code).
            ``"scaled"``: b is multiplied by alpha too (Eq. 1 read literally). b starts at zero.
        normalization: ``"l2"``, ``"bn"``, or ``"none"`` if the network's last layer normalises
            (the head ``heated_up_softmax_bn``; then divide alpha by sqrt(D)).
        bn_shift: Learn a shift, but no scale, after the batch normalisation (the authors' code).
        bn_eps: Added to the batch variance.
        bn_momentum: Weight of a new batch in the running statistics.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler``, ``softmax``, PML's
            ``reducer``, ``weight_init_func`` (default: normal, std 1/sqrt(D), rows of about unit
            length), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"alpha": positive}  # noqa: RUF012
    alpha: float
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float = 16.0,
        bias: Bias = False,
        normalization: Normalization = "l2",
        bn_shift: bool = False,
        bn_eps: float = 1e-3,
        bn_momentum: float = 0.05,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, embedding_size, {"alpha": alpha}, **kwargs)
        self.bias_mode = one_of("bias", bias, (False, "unscaled", "scaled"))
        self.normalization = one_of("normalization", normalization, ("l2", "bn", "none"))
        self.bn_eps = positive("bn_eps", bn_eps)
        self.bn_momentum = fraction("bn_momentum", bn_momentum)
        if bn_shift and normalization != "bn":
            raise ValueError(f'bn_shift=True needs normalization="bn", but got {normalization=}.')
        self.bias = torch.nn.Parameter(torch.zeros(self.num_classes)) if bias else None
        self.shift = torch.nn.Parameter(torch.zeros(self.embedding_size)) if bn_shift else None
        if normalization == "bn":
            self.register_buffer("running_mean", torch.zeros(self.embedding_size))
            self.register_buffer("running_var", torch.ones(self.embedding_size))

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return an initialisation with rows of about unit length.

        The loss depends only on the direction of a proxy, but the gradient of a proxy is divided by
        its length.
        """
        return c_f.TorchInitWrapper(_unit_length_normal)

    def heat(self, alpha: float) -> None:
        """Lower alpha for the second phase: the paper goes from 16 to 4.

        Args:
            alpha: New value, below the current one.

        Raises:
            ValueError: The new value is not below the current one; ``set_phase`` accepts any value.
        """
        if not positive("alpha", alpha) < self.alpha:
            raise ValueError(
                f"heating lowers alpha, which is {self.alpha:g}, but got {alpha=}; "
                "set_phase(alpha=...) accepts any value."
            )
        self.set_phase(alpha=alpha)

    def get_features(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings normalised as in the softmax, without updating the statistics.

        Args:
            embeddings: Shape (N, embedding_size).

        Returns:
            Shape (N, embedding_size), float32 (float64 if the embeddings are).
        """
        embedding_shape(embeddings, self.embedding_size)
        with without_autocast(embeddings):
            return self.features(at_least_float32(embeddings))

    def features(self, embeddings: Tensor, momentum: float = 0.0) -> Tensor:
        """Return the normalised embeddings (Eq. 4 or 7), and update the running statistics.

        A ``momentum`` of 0 does not update them.
        """
        if self.normalization == "none":
            return embeddings
        if self.normalization == "l2":
            return unit_vectors(embeddings)
        features = batch_normalized(
            embeddings,
            self.running_mean,
            self.running_var,
            self.training,
            momentum,
            self.bn_eps,
        )
        if self.shift is not None:
            features = features + self.shift.to(embeddings)
        return features / self.embedding_size**0.5

    def features_in_training(self, embeddings: Tensor) -> Tensor:
        """Return the normalised embeddings, and update the running statistics."""
        return self.features(embeddings, self.bn_momentum)

    def class_parameters(self) -> tuple[Tensor, ...]:
        """Return the proxies and, if there is one, the bias."""
        return (self.proxies,) if self.bias is None else (self.proxies, self.bias)

    def logits(self, f: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """Return the scaled cosines of features and proxies plus the bias, shape (N, C)."""
        z = projections(self.alpha * f, w)
        if b is None:
            return z
        return z + (self.alpha * b if self.bias_mode == "scaled" else b)


def _unit_length_normal(proxies: Tensor) -> None:
    torch.nn.init.normal_(proxies, std=proxies.shape[1] ** -0.5)
