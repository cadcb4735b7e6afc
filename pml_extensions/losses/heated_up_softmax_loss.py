"""Heated-up softmax."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions import _checks
from pml_extensions.functional import (
    Cosine,
    View,
    at_least_float32,
    batch_normalized,
    cross_entropy,
    unit_vectors,
    without_autocast,
)
from pml_extensions.losses._proxy import ProxyLoss, Rows

Normalization = Literal["l2", "bn", "none"]
Bias = Literal[False, "unscaled", "scaled"]


class HeatedUpSoftmaxLoss(ProxyLoss):
    r"""Softmax over scaled cosines, trained cold (large alpha) first and heated up (small) later.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \mathrm{softmax}\big(\alpha \hat W \hat f_i + b\big)_{y_i}

    with the rows of :math:`\hat W` at unit length. "Heated-Up Softmax Embedding", Eq. 1;
    normalisation of the embedding by Eq. 4 (``"l2"``, :math:`\hat f = f / |f|`) or Eq. 7
    (``"bn"``, :math:`\hat f = BN(f) / \sqrt D`). The paper trains at alpha = 16 and then heats by
    ``heat(alpha=4)`` with a tenth of the learning rate.

    With ``"bn"`` the normalised vectors are what the paper retrieves with: ``get_features``
    returns them. A training batch of fewer than two samples has no variance and is normalised by
    the running statistics.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        alpha: Multiplies the cosines (the inverse of the paper's T); can change by phase.
        bias: False: none. ``"unscaled"``: b is added after alpha (the authors' code).
            ``"scaled"``: b is multiplied by alpha as well (Eq. 1 read literally). Starts at zero.
        normalization: ``"l2"``, ``"bn"``, or ``"none"`` where the network's own last layer
            normalises (the head ``heated_up_softmax_bn``; divide alpha by sqrt(D) then).
        bn_shift: Learn a shift, never a scale, after the batch normalisation (the authors' code).
        bn_eps: Added to the batch variance.
        bn_momentum: Weight of a new batch in the running statistics.
        **kwargs: Those of :class:`ProxyLoss`: ``class_sample_ratio``, ``class_chunk_size``,
            ``sparse_gradients``, PML's ``reducer``, ``weight_init_func`` (default: normal, std
            1/sqrt(D), rows of about unit length), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"alpha": _checks.positive}  # noqa: RUF012
    similarity = Cosine(normalize_embeddings=False)
    alpha: Tensor
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
        self.bias_mode = _checks.one_of("bias", bias, (False, "unscaled", "scaled"))
        self.normalization = _checks.one_of("normalization", normalization, ("l2", "bn", "none"))
        self.bn_eps = _checks.positive("bn_eps", bn_eps)
        self.bn_momentum = _checks.fraction("bn_momentum", bn_momentum)
        if bn_shift and normalization != "bn":
            raise ValueError(f'bn_shift=True needs normalization="bn", but got {normalization=}.')
        self.bias = torch.nn.Parameter(torch.zeros(self.num_classes)) if bias else None
        self.shift = torch.nn.Parameter(torch.zeros(self.embedding_size)) if bn_shift else None
        if normalization == "bn":
            self.register_buffer("running_mean", torch.zeros(self.embedding_size))
            self.register_buffer("running_var", torch.ones(self.embedding_size))

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return an initialisation with rows of about unit length.

        Only the direction of a proxy matters, but its length divides its gradient.
        """
        return c_f.TorchInitWrapper(_unit_length_normal)

    def heat(self, alpha: float) -> None:
        """Lower alpha for the second phase: the paper goes from 16 to 4.

        Args:
            alpha: New value, below the present one.

        Raises:
            ValueError: It is not below the present one; ``set_phase`` sets any value.
        """
        if not _checks.positive("alpha", alpha) < float(self.alpha):
            raise ValueError(
                f"heating lowers alpha, which is {float(self.alpha):g}, but got {alpha=}; "
                "set_phase(alpha=...) sets any value."
            )
        self.set_phase(alpha=alpha)

    def get_features(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings normalised as the softmax sees them (statistics stay as they are).

        Args:
            embeddings: Shape (N, embedding_size).

        Returns:
            Shape (N, embedding_size), float32 (float64 if the embeddings are).
        """
        _checks.embedding_shape(embeddings, self.embedding_size)
        with without_autocast(embeddings):
            return self._features(at_least_float32(embeddings))

    def _features(self, embeddings: Tensor, momentum: float = 0.0) -> Tensor:
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

    def _compared(self, embeddings: Tensor) -> Tensor:
        return self.alpha * self._features(embeddings)

    def _bias(self, rows: Rows) -> Tensor | None:
        if self.bias is None:
            return None
        bias = rows(self.bias)
        return self.alpha * bias if self.bias_mode == "scaled" else bias

    def _logits(self, embeddings: Tensor, rows: Rows) -> Tensor:
        cosines = super()._logits(embeddings, rows)
        bias = self._bias(rows)
        return cosines if bias is None else cosines + bias

    def _losses(self, embeddings: Tensor, labels: Tensor, rows: Rows) -> dict[str, Tensor]:
        x = self.alpha * self._features(embeddings, self.bn_momentum)
        bias = self._bias(rows)
        view = View(self.similarity)
        sums = self._class_sums(x, rows(self.proxies), labels, view, bias=bias)
        own = self.similarity.paired(x, sums.own_proxies)
        if bias is not None:
            own = own + bias[labels]
        return {"loss": cross_entropy(own, sums.others[0])}


def _unit_length_normal(proxies: Tensor) -> None:
    torch.nn.init.normal_(proxies, std=proxies.shape[1] ** -0.5)
