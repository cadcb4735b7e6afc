"""Normalised softmax, with class subsampling."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from torch import Tensor

from .._shared.base_losses import ProxyLoss
from .._shared.checks import positive
from .._shared.numerics import projections, unit_vectors


class NormalizedSoftmaxLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Softmax over cosines, divided by a temperature.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{\hat x_i \cdot \hat p_{y_i} / \sigma}}
        {\sum_{j} e^{\hat x_i \cdot \hat p_j / \sigma}}

    with embeddings and proxies at unit length and no bias. "Classification is a Strong Baseline
    for Deep Metric Learning" (BMVC 2019), Eq. 5; with a ``class_sampler`` the sum is over sampled
    classes, as in section 4.3.

    It equals PML's loss of the same name (whose checkpoints it loads), and adds class sampling,
    chunks of classes, and computation in float32.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        temperature: sigma, divides the cosines; can change by phase.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler``, ``softmax``, PML's
            ``reducer``, ``weight_init_func`` (default: standard normal, as in PML), ...

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {"temperature": positive}  # noqa: RUF012
    temperature: float

    def __init__(
        self, num_classes: int, embedding_size: int, temperature: float = 0.05, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, embedding_size, {"temperature": temperature}, **kwargs)

    def features(self, embeddings: Tensor) -> Tensor:
        """Return the embeddings at unit length."""
        return unit_vectors(embeddings)

    def logits(self, x: Tensor, p: Tensor) -> Tensor:
        """Return the cosines of all pairs over sigma, shape (N, C)."""
        return projections(x / self.temperature, p)

    @property
    def W(self) -> Tensor:
        """The proxies as PML stores them, shape (embedding_size, num_classes)."""
        return self.proxies.t()

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Load a checkpoint of this loss or of PML's."""
        if prefix + "W" in state_dict:
            # A checkpoint of PML's loss: its weights are transposed, and it has no temperature.
            state_dict[prefix + "proxies"] = state_dict.pop(prefix + "W").t()
            state_dict.setdefault(prefix + "_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
