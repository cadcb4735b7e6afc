"""Realigned softmax warping."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions.functional import cross_entropy, paired_distances, pairwise_distances
from pml_extensions.losses import _checks
from pml_extensions.losses._proxy import ProxyLoss


def warp_own_distance(
    distance: Tensor,
    alpha: Tensor | float,
    k1: Tensor | float,
    k2: Tensor | float,
    delta_multiplier: Tensor | float,
) -> Tensor:
    r"""Return the warped distance to the own class (Eq. 8 of the paper).

    .. math::
        f_1(t) = k_1 t + m \Delta \;\; (t < \alpha), \qquad
        f_1(t) = k_2 t + (1 - k_2) \alpha \;\; (t \ge \alpha)

    :math:`\Delta = (1 - k_1) t` carries no gradient: inside alpha with m = 1 the value is t, and
    only the pull towards the proxy is scaled by k1. So finite differences of the value disagree
    with the gradient there, by design.

    Args:
        distance: Distances t to the own proxy, any shape.
        alpha: Distance at which the warp changes.
        k1: Slope inside.
        k2: Slope outside.
        delta_multiplier: m.

    Returns:
        Warped distances, shape of ``distance``.
    """
    fixed = distance.detach()
    inside = k1 * distance + delta_multiplier * (1 - k1) * fixed
    outside = k2 * distance + (1 - k2) * alpha
    return torch.where(fixed < alpha, inside, outside)


class WarpedSoftmaxLoss(ProxyLoss):
    r"""Softmax over Euclidean distances to proxies, with the own-class distance warped.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{-s f_1(t_{i y_i})}}
        {e^{-s f_1(t_{i y_i})} + \sum_{j \ne y_i} e^{-s t_{ij}}}, \qquad t_{ij} = |e_i - p_j|

    with :math:`f_1` as in :func:`warp_own_distance` and neither embeddings nor proxies
    normalised. "Realigned Softmax Warping for Deep Metric Learning", Eq. 7 and 8; k1 = k2 = 1 is
    its plain softmax, Eq. 4. The gradient inside alpha is by design not the derivative of the
    value, so line searches and gradient checks do not apply.

    ``get_logits`` returns :math:`-s t_{ij}`: the warp needs the label, and concerns the own class
    only.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        alpha: Distance to the own proxy at which the warp changes; can change by phase.
        k1: Slope of the own distance inside alpha, in theory below 1; can change by phase.
        k2: Slope of the own distance outside alpha, in theory above 1; can change by phase.
        delta_multiplier: m, weight of the gradient-free part inside alpha. The warp is continuous
            at 1 only; the authors' best runs have 1.3 to 1.5; can change by phase.
        scale: s, multiplies all distances (the authors' "Temp"); can change by phase.
        **kwargs: PML's ``reducer``, ``weight_init_func`` (default: Kaiming normal over classes,
            std sqrt(2/C)), ``weight_regularizer``, ``embedding_regularizer`` and their weights.

    Raises:
        ValueError: An argument is out of range.
    """

    phase_checks = {  # noqa: RUF012
        "alpha": _checks.positive_or_infinite,
        "k1": _checks.positive,
        "k2": _checks.positive,
        "delta_multiplier": _checks.non_negative,
        "scale": _checks.positive,
    }
    alpha: Tensor
    k1: Tensor
    k2: Tensor
    delta_multiplier: Tensor
    scale: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float,
        k1: float,
        k2: float,
        delta_multiplier: float = 1.0,
        scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        phase = {
            "alpha": alpha,
            "k1": k1,
            "k2": k2,
            "delta_multiplier": delta_multiplier,
            "scale": scale,
        }
        super().__init__(num_classes, embedding_size, phase, **kwargs)

    def _checked(self, values: Any) -> dict[str, float]:
        checked = super()._checked(values)
        # The paper's own ablation leaves this range, so it is a warning and no error.
        if checked.get("k1", 0) > 1 or checked.get("k2", 1) < 1:
            warnings.warn(
                "the warp's theory holds for k1 <= 1 <= k2, but got "
                + ", ".join(f"{name}={checked[name]}" for name in ("k1", "k2") if name in checked)
                + "; outside it the distances can grow without bound.",
                stacklevel=2,
            )
        return checked

    def get_default_weight_init_func(self) -> c_f.TorchInitWrapper:
        """Return the authors' initialisation of the proxies."""
        return c_f.TorchInitWrapper(torch.nn.init.kaiming_normal_, mode="fan_out")

    def _logits(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        return -self.scale * pairwise_distances(embeddings, proxies)

    def _losses(self, embeddings: Tensor, proxies: Tensor, labels: Tensor) -> Tensor:
        own = paired_distances(embeddings, proxies[labels])
        warped = warp_own_distance(own, self.alpha, self.k1, self.k2, self.delta_multiplier)
        logits = self._logits(embeddings, proxies)
        logits = logits.scatter(1, labels.unsqueeze(1), (-self.scale * warped).unsqueeze(1))
        return cross_entropy(logits, labels)
