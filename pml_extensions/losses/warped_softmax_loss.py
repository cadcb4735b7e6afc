"""Realigned softmax warping."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions import _checks
from pml_extensions.functional import (
    NegativeDistance,
    View,
    Warp,
    cross_entropy,
    paired_distances,
    similarity_matrix,
    warp_own_distance,
)
from pml_extensions.losses._proxy import ProxyLoss, Rows

_WARP_VALUES = ("alpha", "k1", "k2", "delta_multiplier")


class WarpedSoftmaxLoss(ProxyLoss):
    r"""Softmax over Euclidean distances to proxies, with the own-class distance warped.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{-s f_1(t_{i y_i})}}
        {e^{-s f_1(t_{i y_i})} + \sum_{j \ne y_i} e^{-s f_2(t_{ij})}}, \qquad t_{ij} = |e_i - p_j|

    with neither embeddings nor proxies normalised; :math:`f_1` is
    :func:`~pml_extensions.functional.warp_own_distance` and :math:`f_2(t) = t` unless others are
    plugged in. "Realigned Softmax Warping for Deep Metric Learning", Eq. 7 and 8; k1 = k2 = 1 is
    its plain softmax, Eq. 4. The gradient inside alpha is by design not the derivative of the
    value, so line searches and gradient checks do not apply.

    The distances to the own proxy and to the nearest other one are direct differences. The rest
    comes from a matrix product, relative to the mean of the batch's own proxies; float32 loses
    digits only where an embedding far from that mean nearly meets two proxies of other classes.

    Some warps let distances grow without bound (Table III); with PML's ``collect_stats=True`` the
    statistic ``mean_own_distance`` shows it.

    ``get_logits`` returns :math:`-s f_2(t_{ij})`: f1 needs the label, and concerns the own class
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
        own_warp: Function f1 of distances, element by element, in place of alpha, k1, k2 and
            ``delta_multiplier``. ``pml_extensions.functional`` has those of the paper's Table III:
            ``Power(2)``, ``Power(0.5)``, ``Power(1.5)``, ``Scaled(0.97)``, ``Piecewise(...)``.
        other_warp: Function f2; None is t.
        **kwargs: Those of :class:`ProxyLoss`: ``class_sample_ratio``, ``class_chunk_size``,
            ``sparse_gradients``, PML's ``reducer``, ``weight_init_func`` (default: Kaiming normal
            over classes, std sqrt(2/C)), ...

    Raises:
        ValueError: An argument is out of range, or neither or both of ``own_warp`` and alpha, k1,
            k2 are given.
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
        alpha: float | None = None,
        k1: float | None = None,
        k2: float | None = None,
        delta_multiplier: float | None = None,
        scale: float = 1.0,
        own_warp: Warp | None = None,
        other_warp: Warp | None = None,
        **kwargs: Any,
    ) -> None:
        values = dict(zip(_WARP_VALUES, (alpha, k1, k2, delta_multiplier), strict=True))
        if own_warp is None:
            phase = self._warp_values(values) | {"scale": scale}
        else:
            given = [name for name, value in values.items() if value is not None]
            if given:
                raise ValueError(
                    f"own_warp replaces the warp of alpha, k1, k2 and delta_multiplier, but "
                    f"{given[0]}={values[given[0]]!r} was given as well; give one of them."
                )
            self.phase_checks = {"scale": _checks.positive}  # type: ignore[misc]
            phase = {"scale": scale}
        super().__init__(num_classes, embedding_size, phase, **kwargs)
        self.mean_own_distance = 0.0
        self.add_to_recordable_attributes(name="mean_own_distance", is_stat=True)
        self.own_warp = own_warp
        self.other_warp = other_warp
        self.similarity = NegativeDistance(other_warp)

    @staticmethod
    def _warp_values(values: dict[str, float | None]) -> dict[str, Any]:
        missing = [name for name in ("alpha", "k1", "k2") if values[name] is None]
        if missing:
            raise ValueError(
                f"WarpedSoftmaxLoss needs alpha, k1 and k2, but {missing[0]} is missing; k1=1 and "
                "k2=1 with any alpha is the plain softmax, and own_warp takes another warp."
            )
        return values | ({"delta_multiplier": 1.0} if values["delta_multiplier"] is None else {})

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

    def _logits(self, embeddings: Tensor, rows: Rows) -> Tensor:
        proxies = rows(self.proxies)
        shift = proxies.detach().mean(dim=0)
        return self.scale * similarity_matrix(self.similarity, embeddings - shift, proxies - shift)

    def _losses(self, embeddings: Tensor, labels: Tensor, rows: Rows) -> dict[str, Tensor]:
        view = View(self.similarity, self.scale)
        proxies = rows(self.proxies)
        # Distances do not change by a shift, and near the origin the product keeps its digits. Not
        # the mean of the embeddings: a single one far off would cost all others theirs.
        shift = proxies.detach()[labels].mean(dim=0)
        sums = self._class_sums(embeddings, proxies, labels, view, shift=shift)
        own_distance = paired_distances(embeddings, sums.own_proxies)
        if self.collect_stats and len(own_distance):
            self.mean_own_distance = own_distance.detach().mean().item()
        return {"loss": cross_entropy(-self.scale * self._warp(own_distance), sums.others[0])}

    def _warp(self, distance: Tensor) -> Tensor:
        if self.own_warp is not None:
            return self.own_warp(distance)
        return warp_own_distance(distance, self.alpha, self.k1, self.k2, self.delta_multiplier)
