"""Global pooling of feature maps to vectors; inputs that are vectors are returned unchanged."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pml_extensions._shared import checks
from pml_extensions._shared.numerics import at_least_float32


class _GlobalPooling(nn.Module):
    """Pools maps (N, C, H, W) to vectors (N, C), and returns vectors (N, C) unchanged."""

    def forward(self, maps: Tensor) -> Tensor:
        if maps.ndim == 2:
            return maps
        if maps.ndim != 4 or 0 in maps.shape[2:]:
            raise ValueError(
                "pooling takes maps (N, C, H, W) or pooled vectors (N, C), but got shape "
                f"{tuple(maps.shape)}; for tokens (N, T, C), add TokenPooling() before it."
            )
        return self._pool(maps)

    def _pool(self, maps: Tensor) -> Tensor:
        raise NotImplementedError


class AveragePooling(_GlobalPooling):
    """Mean over all positions.

    Shape: (N, C, H, W) -> (N, C); (N, C) is returned unchanged.
    """

    def _pool(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))


class MaxPooling(_GlobalPooling):
    """Maximum over all positions; if several are equal, the gradient is split between them.

    Shape: (N, C, H, W) -> (N, C); (N, C) is returned unchanged.
    """

    def _pool(self, maps: Tensor) -> Tensor:
        return maps.amax(dim=(2, 3))


class MaxAveragePooling(_GlobalPooling):
    """Sum of the mean and the maximum over all positions.

    Used by HIST and by "Realigned Softmax Warping for Deep Metric Learning".

    Shape: (N, C, H, W) -> (N, C); (N, C) is returned unchanged.
    """

    def _pool(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))


class GeneralizedMeanPooling(_GlobalPooling):
    r"""Generalised mean (GeM): the mean for p = 1, approaching the maximum as p grows.

    .. math:: \Big(\frac{1}{HW} \sum_{h,w} \max(x_{hw}, \epsilon)^p\Big)^{1/p}

    "Fine-tuning CNN Image Retrieval with No Human Annotation", Eq. 3; p = 3 in "Stop-Gradient
    Softmax Loss for Deep Metric Learning". **The clamp at eps acts as a ReLU**: negative
    activations are clamped and get no gradient, even if the trunk's last ReLU was removed.

    Computed in float32 (float64 for float64 maps), also under autocast, and relative to the
    largest activation, so that powers neither underflow nor overflow.

    Args:
        p: Exponent, greater than 0.
        learn_p: Make ``p`` a parameter. Nothing keeps it positive: use a small learning rate and
            no weight decay.
        eps: Lower bound of activations. With ``signed`` the bound is relative to the largest
            absolute activation: smaller nonzero activations are raised to the bound in absolute
            value, and a mean of powers below the bound counts as zero.
        signed: Our own extension: :math:`\mathrm{sign}(x)|x|^p` and the corresponding root, without
            the clamp at 0. The gradient is large where negative and positive activations cancel.

    Shape: (N, C, H, W) -> (N, C), in the dtype of the maps; (N, C) is returned unchanged.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self, p: float = 3.0, learn_p: bool = False, eps: float = 1e-6, signed: bool = False
    ) -> None:
        super().__init__()
        exponent = checks.positive("p", p)
        self.p = nn.Parameter(torch.tensor([exponent])) if learn_p else exponent
        self.eps = checks.positive("eps", eps)
        self.signed = signed

    def _pool(self, maps: Tensor) -> Tensor:
        x = at_least_float32(maps)
        p = self.p.to(x) if isinstance(self.p, Tensor) else self.p
        pooled = self._signed_mean(x, p) if self.signed else self._mean(x, p)
        return pooled.to(maps.dtype)

    def _mean(self, x: Tensor, p: Tensor | float) -> Tensor:
        """Return the generalised mean over all positions, from activations of at most 1."""
        x = x.clamp(min=self.eps)
        # Scaling by a constant cancels out, so ``largest`` needs no gradient.
        largest = x.detach().amax(dim=(2, 3), keepdim=True)
        return (x / largest).pow(p).mean(dim=(2, 3)).pow(1 / p) * largest.flatten(1)

    def _signed_mean(self, x: Tensor, p: Tensor | float) -> Tensor:
        """Return the signed root of the mean of sign(x) |x|^p, scaled as in ``_mean``."""
        largest = x.detach().abs().amax(dim=(2, 3), keepdim=True).clamp(min=self.eps)
        x = x / largest
        mean = (x.sign() * x.abs().clamp(min=self.eps).pow(p)).mean(dim=(2, 3))
        # At 0 the root may have an infinite slope; there the result and the gradient are 0.
        is_zero = mean.abs() <= self.eps
        root = mean.abs().masked_fill(is_zero, 1.0).pow(1 / p)
        return root * mean.sign().masked_fill(is_zero, 0.0) * largest.flatten(1)

    def extra_repr(self) -> str:
        # A parameter, which changes in training, is shown by its shape.
        p = tuple(self.p.shape) if isinstance(self.p, Tensor) else self.p
        return f"p={p}, eps={self.eps}, signed={self.signed}"


class TokenPooling(nn.Module):
    """Pools the tokens of a transformer: the class token, or a pooling of the patch tokens.

    ``nn.Sequential(trunk, TokenPooling(), build_head(...))`` combines a transformer with any head.

    Args:
        pooling: Pooling of the patch tokens, such as ``AveragePooling()`` or
            ``GeneralizedMeanPooling()``; None returns the first token (the class token).
        prefix: Number of tokens before the patch tokens: the class token and register tokens.

    Shape: (N, T, C) -> (N, C).

    Raises:
        ValueError: The shape is wrong, or there are no patch tokens.
    """

    def __init__(self, pooling: nn.Module | None = None, prefix: int = 1) -> None:
        super().__init__()
        self.pooling = pooling
        self.prefix = prefix if pooling else 0  # the class token alone suffices without pooling

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 3 or tokens.shape[1] <= self.prefix:
            raise ValueError(
                f"TokenPooling takes tokens (N, T, C) with T > {self.prefix}, but got shape "
                f"{tuple(tokens.shape)}."
            )
        if self.pooling is None:
            return tokens[:, 0]
        # The patch tokens as maps of shape (N, C, T, 1).
        pooled: Tensor = self.pooling(tokens[:, self.prefix :].transpose(1, 2).unsqueeze(3))
        return pooled
