"""Realigned softmax warping."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.losses.mixins import WeightRegularizerMixin
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from pml_extensions.functional.warps import Warp, warp_own_distance

from .._shared.base_losses import ProxyLoss
from .._shared.checks import non_negative, positive, positive_or_infinite
from .._shared.numerics import (
    Fused,
    paired_distances,
    pairwise_distances,
    root,
    second_derivatives_from,
    softplus,
    squared_lengths,
    without_autocast,
)


class WarpedSoftmaxLoss(ProxyLoss, WeightRegularizerMixin, BaseMetricLossFunction):
    r"""Softmax over Euclidean distances to proxies, with a warped distance to the own class.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{-s f_1(t_{i y_i})}}
        {e^{-s f_1(t_{i y_i})} + \sum_{j \ne y_i} e^{-s f_2(t_{ij})}}, \qquad t_{ij} = |e_i - p_j|

    without normalising embeddings or proxies. By default :math:`f_1` is
    :func:`~pml_extensions.functional.warps.warp_own_distance` and :math:`f_2(t) = t`. "Realigned
    Softmax Warping for Deep Metric Learning", Eq. 7 and 8; k1 = k2 = 1 is its plain softmax, Eq. 4.
    The gradient inside alpha is by design not the derivative of the value, so line searches and
    gradient checks cannot be used.

    For precision, the distances to the own proxy and to the nearest proxies (on a CPU up to 128 for
    each embedding, on a GPU and under torch.compile eight) are computed from differences. The other
    distances come from a matrix product, relative to the mean of the batch's own proxies.

    With some warps distances grow without bound (Table III), which the statistic
    ``mean_own_distance`` of PML's ``collect_stats=True`` shows.

    ``get_logits`` returns :math:`-s f_2(t_{ij})` for all classes, because f1 needs the label.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        alpha: Distance to the own proxy at which the warp changes; can change by phase.
        k1: Slope of the own distance inside alpha, in theory below 1; can change by phase.
        k2: Slope of the own distance outside alpha, in theory above 1; can change by phase.
        delta_multiplier: m, weight of the gradient-free part inside alpha. The warp is continuous
            only for m = 1; the authors' best runs have 1.3 to 1.5; can change by phase.
        scale: s, multiplies all distances (the authors' "Temp"); can change by phase.
        own_warp: Elementwise function f1 of distances, instead of alpha, k1, k2 and
            ``delta_multiplier``. ``pml_extensions.functional`` has the warps of Table III:
            ``Power(2)``, ``Power(0.5)``, ``Power(1.5)``, ``Scaled(0.97)``, ``Piecewise(...)``.
        other_warp: Function f2; None means f2(t) = t.
        **kwargs: Arguments of :class:`ProxyLoss`: ``class_sampler``, ``softmax``, PML's
            ``reducer``, ``weight_init_func`` (default: Kaiming normal over classes, std
            sqrt(2/C)), ...

    Raises:
        ValueError: An argument is out of range, or neither or both of ``own_warp`` and alpha, k1,
            k2 are given.
    """

    phase_checks = {  # noqa: RUF012
        "alpha": positive_or_infinite,
        "k1": positive,
        "k2": positive,
        "delta_multiplier": non_negative,
        "scale": positive,
    }
    alpha: float
    k1: float
    k2: float
    delta_multiplier: float
    scale: float

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
        values = {"alpha": alpha, "k1": k1, "k2": k2, "delta_multiplier": delta_multiplier}
        if own_warp is None:
            phase = self._complete_warp_arguments(values) | {"scale": scale}
        else:
            extra = [name for name, value in values.items() if value is not None]
            if extra:
                raise ValueError(
                    f"own_warp replaces the warp of alpha, k1, k2 and delta_multiplier, but "
                    f"{extra[0]}={values[extra[0]]!r} was given as well; give one of them."
                )
            # This instance then has no other hyper-parameter.
            self.phase_checks = {"scale": positive}  # type: ignore[misc]
            phase = {"scale": scale}
        super().__init__(num_classes, embedding_size, phase, **kwargs)
        self.mean_own_distance = 0.0
        self.add_to_recordable_attributes(name="mean_own_distance", is_stat=True)
        self.own_warp = own_warp
        self.other_warp = other_warp

    @staticmethod
    def _complete_warp_arguments(values: dict[str, float | None]) -> dict[str, Any]:
        """Return ``values`` with the default delta_multiplier; alpha, k1 and k2 are required."""
        missing = [name for name in ("alpha", "k1", "k2") if values[name] is None]
        if missing:
            raise ValueError(
                f"WarpedSoftmaxLoss needs alpha, k1 and k2, but {missing[0]} is missing; k1=1 and "
                "k2=1 with any alpha is the plain softmax, and own_warp takes another warp."
            )
        if values["delta_multiplier"] is None:
            return values | {"delta_multiplier": 1.0}
        return values

    def _checked_phase(self, values: Any) -> dict[str, float]:
        """Return the values as floats; warn if k1 or k2 is outside of the range of the theory."""
        checked = super()._checked_phase(values)
        # A warning and no error, because the paper's own ablation leaves this range.
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

    def logits(self, e: Tensor, p: Tensor, origin: Tensor | None = None) -> Tensor:
        """Return -s f2(t) of all pairs, shape (N, C); ``origin`` is subtracted before products."""
        origin = p.detach().mean(dim=0) if origin is None else origin
        t: Tensor = _ClassDistances.apply(e, p, origin)[0]
        return -self.scale * (t if self.other_warp is None else self.other_warp(t))

    def sample_losses(self, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the sub-losses by name, each of shape (N,)."""
        y, (p,) = self.select_classes(embeddings, labels, self.proxies)
        # Distances do not change under a shift, and the product is more precise near the origin.
        # The mean of the embeddings would be worse: one outlier would cost all others precision.
        logits = partial(self.logits, origin=p.detach()[y].mean(dim=0))
        sums = self.softmax.sums(logits, embeddings, (p,), y)
        t = paired_distances(embeddings, sums.label_rows[0])
        if self.collect_stats and len(t):
            self.mean_own_distance = t.detach().mean().item()
        return {"loss": softplus(sums.others + self.scale * self._warped_own_distance(t))}

    def _warped_own_distance(self, t: Tensor) -> Tensor:
        if self.own_warp is not None:
            return self.own_warp(t)
        return warp_own_distance(t, self.alpha, self.k1, self.k2, self.delta_multiplier)


class _ClassDistances(Fused):
    """|e_i - p_j|, shape (N, C), from differences for near proxies and from a product for others.

    ``origin`` is subtracted before the product. The shifted proxies are not saved for backward.
    """

    @staticmethod
    def forward(e: Tensor, p: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
        x, c = e - origin, p - origin  # a shift changes no distance
        squared = torch.addmm(squared_lengths(c), x, c.t(), alpha=-2)
        squared_norms = squared_lengths(x).unsqueeze(1)
        t = squared.add_(squared_norms).clamp_min_(0.0).sqrt_()
        # At short distances, relative to |x|, the product loses digits, so the nearest columns of
        # each row are computed from differences.
        near = _near_columns(t, 0.1 * squared_norms.sqrt())
        t.scatter_(1, near, root((e.unsqueeze(1) - p[near]).square().sum(dim=-1)))
        return t, near

    @staticmethod
    @second_derivatives_from(lambda e, p, origin: (pairwise_distances(e, p),))
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        e, p, origin, t, near = ctx.saved_tensors
        scaled_grad = (grads[0] / t).masked_fill_(t == 0, 0.0)
        # The gradient of e_i is the sum over j of g_ij (e_i - p_j) / t_ij: by differences for near
        # pairs, and by products for all others.
        near_grad = scaled_grad.gather(1, near).unsqueeze(-1) * (e.unsqueeze(1) - p[near])
        scaled_grad.scatter_(1, near, 0.0)
        x, c = e - origin, p - origin
        with without_autocast(e):
            grad_e = (scaled_grad.sum(dim=1, keepdim=True) * x).addmm_(scaled_grad, c, alpha=-1)
            grad_p = c.mul_(scaled_grad.sum(dim=0).unsqueeze(1))
            grad_p.addmm_(scaled_grad.t(), x, alpha=-1)
        grad_p.index_add_(0, near.flatten(), near_grad.flatten(0, 1), alpha=-1)
        return grad_e.add_(near_grad.sum(dim=1)), grad_p, None


def _near_columns(t: Tensor, bound: Tensor) -> Tensor:
    """Return the columns of the k smallest distances of each row of ``t``, shape (N, k).

    On a CPU k grows, up to 128, until all distances below ``bound`` are included. On a GPU and
    under torch.compile, where a shape should not depend on values, k is 8.
    """
    if t.device.type != "cpu" or torch.compiler.is_compiling():
        return _nearest_columns(t, 8)
    near, k = _nearest_columns(t, 1), 1
    while k < min(128, t.shape[1]) and bool((t.gather(1, near).amax(1, True) < bound).any()):
        k *= 2
        near = _nearest_columns(t, k)
    return near


def _nearest_columns(t: Tensor, k: int) -> Tensor:
    """Return the columns of the min(k, C) smallest values of each row of ``t``, of shape (N, C).

    On a CPU ``topk`` takes a hundred times as long as ``amin``. So the columns are split into
    blocks, and only the k blocks with the smallest minima are searched.
    """
    width = t.shape[1]
    block_size = min(64, width)
    full_width = width - width % block_size
    minima = [t[:, :full_width].unflatten(1, (-1, block_size)).amin(dim=2)]
    if full_width < width:
        minima.append(t[:, full_width:].amin(dim=1, keepdim=True))
    first = (
        _smallest_columns(torch.cat(minima, dim=1), k) * block_size
    )  # the first column of each block
    columns = (first.unsqueeze(2) + torch.arange(block_size, device=t.device)).flatten(1)
    # The last block may reach beyond the last column.
    candidates = t.gather(1, columns.clamp_max(width - 1)).masked_fill(columns >= width, torch.inf)
    return columns.gather(1, _smallest_columns(candidates, min(k, width)))


def _smallest_columns(t: Tensor, k: int) -> Tensor:
    """Return the columns of the min(k, C) smallest values of each row."""
    return t.topk(min(k, t.shape[1]), largest=False).indices
