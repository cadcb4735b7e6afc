"""Normalisation layers for heads that torch has no module for."""

from __future__ import annotations

from numbers import Integral

import torch.nn.functional as F
from torch import Tensor, nn

from pml_extensions._shared import checks
from pml_extensions._shared.numerics import at_least_float32
from pml_extensions.functional import unit_vectors, without_autocast


class BatchNormNeck(nn.BatchNorm1d):
    """Batch normalisation of vectors or maps, with scale and shift as separate options.

    "Stop-Gradient Softmax Loss for Deep Metric Learning": ``scale=False, shift=False`` in the
    paper, ``scale=True, shift=False`` in the authors' code (a bias frozen at 0). Both use
    the output of this layer for retrieval.

    A training batch with a single value per channel has no variance: it is normalised with the
    running statistics and does not update them. Everything else is inherited from torch: running
    statistics, momentum, conversion to SyncBatchNorm.

    Args:
        num_features: Number of channels C.
        scale: Learn a factor per channel, initially 1.
        shift: Learn an offset per channel, initially 0.
        eps: Added to the variance.
        momentum: Weight of a new batch in the running statistics; None averages all batches.

    Shape: (N, C) or (N, C, H, W) -> the same shape.

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
        self.affine = scale or shift  # read by the conversion to SyncBatchNorm

    def reset_parameters(self) -> None:
        """Reset the scale to 1, the shift to 0, and the running statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            nn.init.ones_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if self.training and input.numel() <= self.num_features:  # one value per channel, or none
            self._check_input_dim(input)
            # Without training=True, torch normalises with the running statistics.
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
    """n pairs of BN (with scale and shift, as in a trunk) and ReLU, which come before the neck.

    "Stop-Gradient Softmax Loss for Deep Metric Learning", Fig. 4: n = 0 is the plain head, and
    larger n gives worse results. The authors have published no code for it.

    Args:
        n: Number of pairs, at least 0. For n = -1 of the figure, call
            :func:`~pml_extensions.modules.remove_last_bn_relu` on the trunk.
        num_features: Number of channels C.

    Shape: (N, C) or (N, C, H, W) -> the same shape.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(self, n: int, num_features: int) -> None:
        super().__init__()
        num_features = checks.positive_integer("num_features", num_features)
        for _ in range(_checked_count(n)):
            self.append(BatchNormNeck(num_features, scale=True, shift=True))
            self.append(nn.ReLU())


class UnitLength(nn.Module):
    """Scales each vector to length 1; a zero vector stays zero and gets zero gradient.

    Shape: (..., D) -> (..., D), float32 (float64 for float64 input), also under autocast.
    """

    def forward(self, x: Tensor) -> Tensor:
        with without_autocast(x):
            return unit_vectors(at_least_float32(x))


def _checked_count(n: int) -> int:
    """Return ``n``, or raise ValueError if it is not a number of pairs."""
    if n == -1:
        raise ValueError(
            "n=-1 removes the last BN and ReLU of the trunk: write remove_last_bn_relu(trunk), and "
            "n=0 here."
        )
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
        raise ValueError(f"n must be a whole number of at least 0, but got {n=}.")
    return n
