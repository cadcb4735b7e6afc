"""The sums of a softmax over classes, without the copies that autograd keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .numerics import Fused, differentiable_as

#: A term e^this of a softmax, 2e-35, changes no sum, yet is no denormal number in float32.
NEGLIGIBLE = -80.0

#: Returns the logits of embeddings, shape (N, D), and the rows of class-wise parameters,
#: shape (C, ...): shape (N, C), or (V, N, C) of V softmaxes over the same classes.
Logits = Callable[..., Tensor]


class Sums(NamedTuple):
    """What a softmax comes to for each sample, shape (N,) or (V, N).

    ``own`` is the logit of the sample's own class y, ``others`` the log-sum-exp of those of all
    other classes (minus infinity of none), ``total`` the sum of all; ``rows`` are those of the
    class-wise parameters that belong to y, shape (N, ...).
    """

    own: Tensor
    others: Tensor
    total: Tensor
    rows: tuple[Tensor, ...]


class Part(NamedTuple):
    """The sums over some of the classes; ``top + log_sum`` are those of the other classes."""

    own: Tensor
    top: Tensor
    log_sum: Tensor
    total: Tensor

    @classmethod
    def of(cls, z: Tensor, labels: Tensor, start: int = 0) -> Part:
        """Sum up the logits of the classes from ``start`` on, which are overwritten."""
        place, here = places(z, labels, start)
        own, total = z.gather(-1, place), z.sum(dim=-1)
        z.scatter_(-1, place, own.masked_fill(here, -torch.inf))
        # Relative to the largest, because a large sum loses the digits of its logarithm.
        top = z.amax(dim=-1, keepdim=True)
        terms = z.sub_(top.masked_fill(top == -torch.inf, 0.0)).clamp_(min=NEGLIGIBLE).exp_()
        own = own.masked_fill(~here, 0.0).squeeze(-1)
        return cls(own, top.squeeze(-1), terms.sum(dim=-1).log_(), total)


def logit_gradient(
    z: Tensor,
    labels: Tensor,
    top: Tensor,
    log_sum: Tensor,
    grads: Sequence[Tensor | None],
    start: int = 0,
) -> Tensor:
    """Return the gradient of :meth:`Part.of` from those of own, ``top + log_sum`` and total."""
    grad_own, grad_others, grad_total = grads
    place, here = places(z, labels, start)
    # Where there is no other class the sum is minus infinity, and its gradient must be zero.
    terms = z - top.masked_fill(top == -torch.inf, 0.0).unsqueeze(-1)
    terms.clamp_(min=NEGLIGIBLE).exp_()
    # With the logarithm added to a large maximum, the terms would not add up to 1.
    weight = torch.exp(-log_sum) * (0.0 if grad_others is None else grad_others)
    # Products of denormal numbers are slow.
    grad = torch.threshold_(terms, math.exp(NEGLIGIBLE) * 1.001, 0.0).mul_(weight.unsqueeze(-1))
    mine = grad.gather(-1, place).masked_fill(here, 0.0)
    if grad_own is not None:
        mine += grad_own.unsqueeze(-1) * here
    grad.scatter_(-1, place, mine)
    return grad if grad_total is None else grad.add_(grad_total.unsqueeze(-1))


def places(z: Tensor, labels: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return where in ``z`` each sample's class is, or any place if elsewhere, and whether."""
    place = (labels - start).expand(z.shape[:-1]).unsqueeze(-1)
    here = (place >= 0) & (place < z.shape[-1])
    return place.clamp(0, z.shape[-1] - 1), here


def own_rows(row: Tensor, labels: Tensor) -> Tensor:
    """Return the rows of the samples' classes, shape (N, ...)."""
    if row.ndim != 2 or torch.compiler.is_compiling():
        return row.index_select(0, labels)
    # A sparse gradient is added to a dense one in place, without one more of all classes.
    return F.embedding(labels, row, sparse=True)


def plain_sums(z: Tensor, labels: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return own, ``top + log_sum`` and total of :meth:`Part.of` by plain operations."""
    place, here = places(z, labels, start)
    own = z.gather(-1, place)
    # Not minus infinity: of nothing else the derivative would be no number.
    lowest = torch.finfo(z.dtype).min
    others = z.scatter(-1, place, own.masked_fill(here, lowest)).logsumexp(dim=-1)
    return own.masked_fill(~here, 0.0).squeeze(-1), others, z.sum(dim=-1)


class _MatrixSums(Fused):
    """The sums of a matrix of logits; fewer passes and copies of it than autograd takes."""

    @staticmethod
    def forward(z: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        part = Part.of(z.clone(), labels)
        return part.own, part.top + part.log_sum, part.total, part.top, part.log_sum

    @staticmethod
    def setup_context(ctx: Any, *args: Any) -> None:
        Fused.setup_context(ctx, *args)
        # Zeros for a total that nobody takes would be added to the whole matrix.
        ctx.set_materialize_grads(False)

    @staticmethod
    @differentiable_as(plain_sums)
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        z, labels, _, _, _, top, log_sum = ctx.saved_tensors
        return logit_gradient(z, labels, top, log_sum, grads[:3]), None


class Softmax:
    """A softmax over all classes at once, from the N x C matrix of logits."""

    def cross_entropy(
        self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,).

        Args:
            logits: The equation of z.
            x: Embeddings, shape (N, D).
            rows: Class-wise parameters, shape (C, ...).
            labels: Own classes y, shape (N,), values 0..C-1.
        """
        return F.cross_entropy(logits(x, *rows), labels, reduction="none")

    def sums(self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the parts of the cross-entropy, ``softplus(others - own)``; same arguments."""
        # Before the logits, so that their gradient is there when the sparse one is added to it.
        of_labels = tuple(own_rows(row, labels) for row in rows)
        z = logits(x, *rows)
        if not z.requires_grad:  # a sparse gradient alone is none that Adam takes
            of_labels = tuple(row.index_select(0, labels) for row in rows)
        own, others, total, *_ = _MatrixSums.apply(z, labels)
        return Sums(own, others, total, of_labels)
