"""Normalisations of heads that torch does not have as a module."""

from __future__ import annotations

from numbers import Integral

import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions._shared import checks
from pml_extensions._shared.numerics import at_least_float32
from pml_extensions.functional import unit_vectors, without_autocast


class BatchNormNeck(nn.BatchNorm1d):
    """Batch normalisation with scale and shift chosen apart, for vectors and for maps.

    "Stop-Gradient Softmax Loss for Deep Metric Learning": ``scale=False, shift=False`` in the
    paper, ``scale=True, shift=False`` in the authors' code (a bias frozen at 0). The output is what
    they retrieve with.

    A training batch with one value a channel has no variance: it is normalised by the running
    statistics, which stay as they are. Everything else is torch's: running statistics, momentum,
    conversion to SyncBatchNorm.

    Args:
        num_features: Number of channels C.
        scale: Learn a factor per channel, initially 1.
        shift: Learn a term per channel, initially 0.
        eps: Added to the variance.
        momentum: Weight of a new batch in the running statistics; None: their cumulative average.

    Shape: (N, C) or (N, C, H, W) -> the same.

    Raises:
        ValueError: An argument or the shape is not allowed.
    """

    def __init__(
        self,
        num_features: int,
        scale: bool = True,
        shift: bool = False,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
    ) -> None:
        num_features = checks.positive_integer("num_features", num_features)
        super().__init__(num_features, checks.positive("eps", eps), momentum)
        if not scale:
            self.register_parameter("weight", None)
        if not shift:
            self.register_parameter("bias", None)
        self.affine = scale or shift

    def reset_parameters(self) -> None:
        """Set scale to 1, shift to 0, and forget the statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() <= self.num_features:
            self._check_input_dim(input)
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(input)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 4) or input.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__} takes (N, {self.num_features}) or "
                f"(N, {self.num_features}, H, W), but got shape {tuple(input.shape)}."
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, scale={self.weight is not None}, "
            f"shift={self.bias is not None}, eps={self.eps}, momentum={self.momentum}"
        )


class ContinuousBNReLU(nn.Sequential):
    """n modules of BN (with scale and shift, as in a trunk) and ReLU, put before the neck's BN.

    "Stop-Gradient Softmax Loss for Deep Metric Learning", Fig. 4: 0 is the plain head, and more of
    them only do harm. No code of the authors' for it is public.

    Args:
        n: Number of modules, at least 0. The figure's -1 is done to the trunk, by
            :func:`~pml_extensions.modules.remove_last_bn_relu`.
        num_features: Number of channels C.

    Shape: (N, C) or (N, C, H, W) -> the same.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(self, n: int, num_features: int) -> None:
        super().__init__()
        num_features = checks.positive_integer("num_features", num_features)
        for _ in range(_count(n)):
            self.append(BatchNormNeck(num_features, scale=True, shift=True))
            self.append(nn.ReLU())


class UnitLength(nn.Module):
    """Scales each vector to length 1; a zero vector stays zero and gets zero gradient.

    Shape: (..., D) -> (..., D), float32 (float64 if the input is), whatever autocast does.
    """

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x):
            return unit_vectors(at_least_float32(x))


def _count(n: int) -> int:
    if n == -1:
        raise ValueError(
            "n=-1 removes the last BN and ReLU of the trunk: write remove_last_bn_relu(trunk), and "
            "n=0 here."
        )
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
        raise ValueError(f"n must be a whole number of at least 0, but got {n=}.")
    return n
