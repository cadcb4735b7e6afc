"""ProxyNCA++."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from .._shared.base_losses import ProxyLoss
from .._shared.checks import positive
from .._shared.numerics import projections, unit_vectors


class ProxyNCAPlusPlusLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Softmax cross-entropy over squared distances between embeddings and proxies of length s.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{-|s \hat x_i - s \hat p_{y_i}|^2}}
        {\sum_{j} e^{-|s \hat x_i - s \hat p_j|^2}}

    "ProxyNCA++: Revisiting and Revitalizing Proxy Neighborhood Component Analysis" (ECCV 2020),
    Eq. 6 with temperature 1 / s^2. It equals a softmax over cosines times 2 s^2, and these logits
    are computed here (see ``get_logits``). It also equals PML's
    ``ProxyNCALoss(softmax_scale=s**2)``, except that PML drops samples whose probability
    underflows.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        scale: s, the length of scaled embeddings and proxies; can change by phase. The paper's
            temperature 1/9 is s = 3.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler``, ``softmax``, PML's
            ``reducer``, ``weight_init_func`` (default: the authors', normal, std 1/8), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"scale": positive}  # noqa: RUF012
    scale: float

    def __init__(
        self, num_classes: int, embedding_size: int, scale: float = 3.0, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, {"scale": scale}, **kwargs)

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation of the proxies."""
        return c_f.TorchInitWrapper(torch.nn.init.normal_, std=1 / 8)

    def features(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings at unit length."""
        return unit_vectors(embeddings)

    def logits(self, x: Tensor, p: Tensor) -> Tensor:
        """Return -|s x - s p|^2 plus the constant 2 s^2, for unit vectors x and p: shape (N, C)."""
        return projections(2 * self.scale**2 * x, p)
