"""The sums of a softmax over classes, without the copies that autograd keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .numerics import Fused, second_derivatives_from

#: Exponents are clamped to this: e^-80 = 2e-35 changes no sum and is not denormal in float32.
NEGLIGIBLE = -80.0

#: Computes logits from embeddings, shape (N, D), and rows of class-wise parameters, shape
#: (C, ...). Returns shape (N, C), or (V, N, C) for V softmaxes over the same classes.
Logits = Callable[..., Tensor]


class Sums(NamedTuple):
    """Sums over the logits of each sample, shape (N,), or (V, N) for V softmaxes.

    Attributes:
        own: Logit of the sample's own class.
        others: Log-sum-exp of the logits of all other classes; minus infinity if there are none.
        total: Sum of all logits.
        label_rows: Rows of the class-wise parameters for the own class, each of shape (N, ...).
    """

    own: Tensor
    others: Tensor
    total: Tensor
    label_rows: tuple[Tensor, ...]


class Part(NamedTuple):
    """Sums over a part of the classes.

    ``own``, which is 0 if the part lacks the sample's own class, and ``total`` are as in
    :class:`Sums`. ``top`` is the largest logit of a class other than the sample's own, and
    ``top + log_sum`` is the log-sum-exp of the logits of these other classes.
    """

    own: Tensor
    top: Tensor
    log_sum: Tensor
    total: Tensor

    @classmethod
    def of(cls, z: Tensor, labels: Tensor, start: int = 0) -> Part:
        """Return the sums of ``z``, the logits of classes from ``start`` on; overwrites ``z``."""
        column, is_present = own_columns(z, labels, start)
        own, total = z.gather(-1, column), z.sum(dim=-1)
        # Leaves out the own class; where it is not present, the entry keeps its value.
        z.scatter_(-1, column, own.masked_fill(is_present, -torch.inf))
        # Relative to the largest logit, so that the logarithm of the sum keeps its digits.
        top = z.amax(dim=-1, keepdim=True)
        terms = z.sub_(top.masked_fill(top == -torch.inf, 0.0)).clamp_(min=NEGLIGIBLE).exp_()
        own = own.masked_fill(~is_present, 0.0).squeeze(-1)
        return cls(own, top.squeeze(-1), terms.sum(dim=-1).log_(), total)


def logit_gradient(
    z: Tensor,
    labels: Tensor,
    top: Tensor,
    log_sum: Tensor,
    grads: Sequence[Tensor | None],
    start: int = 0,
) -> Tensor:
    """Return the gradient of ``z``, the logits of classes from ``start`` on.

    ``top`` and ``log_sum`` are those of :class:`Part` over all classes. ``grads`` are the gradients
    of own, of ``top + log_sum`` and of total; None means zeros.
    """
    grad_own, grad_others, grad_total = grads
    column, is_present = own_columns(z, labels, start)
    # Without another class the log-sum-exp is minus infinity, and its gradient must be zero.
    terms = z - top.masked_fill(top == -torch.inf, 0.0).unsqueeze(-1)
    terms.clamp_(min=NEGLIGIBLE).exp_()
    # Not exp(z - (top + log_sum)): a large ``top`` would round log_sum off.
    weight = torch.exp(-log_sum) * (0.0 if grad_others is None else grad_others)
    # Clamped terms (0.1 % more, for rounding) become 0, because products of denormal numbers are
    # slow.
    grad = torch.threshold_(terms, math.exp(NEGLIGIBLE) * 1.001, 0.0).mul_(weight.unsqueeze(-1))
    # The sum over other classes has no gradient in the column of the own class.
    label_grad = grad.gather(-1, column).masked_fill(is_present, 0.0)
    if grad_own is not None:
        label_grad += grad_own.unsqueeze(-1) * is_present
    grad.scatter_(-1, column, label_grad)
    return grad if grad_total is None else grad.add_(grad_total.unsqueeze(-1))


def own_columns(z: Tensor, labels: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return the column of each sample's own class in ``z``, and whether ``z`` has that class.

    Column 0 of ``z`` belongs to class ``start``. A missing class gets the first or last column.
    """
    column = (labels - start).expand(z.shape[:-1]).unsqueeze(-1)
    is_present = (column >= 0) & (column < z.shape[-1])
    return column.clamp(0, z.shape[-1] - 1), is_present


def select_label_rows(parameter: Tensor, labels: Tensor) -> Tensor:
    """Return the row of a class-wise parameter for each sample's own class, shape (N, ...)."""
    if parameter.ndim != 2 or torch.compiler.is_compiling():
        return parameter.index_select(0, labels)
    # A sparse gradient is added in place to the dense one of the logits, without a second copy.
    return F.embedding(labels, parameter, sparse=True)


def plain_sums(z: Tensor, labels: Tensor, start: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return own, ``top + log_sum`` and total of :meth:`Part.of`, from plain operations."""
    column, is_present = own_columns(z, labels, start)
    own = z.gather(-1, column)
    # Not minus infinity: with no other class the derivative would be NaN.
    lowest = torch.finfo(z.dtype).min
    others = z.scatter(-1, column, own.masked_fill(is_present, lowest)).logsumexp(dim=-1)
    return own.masked_fill(~is_present, 0.0).squeeze(-1), others, z.sum(dim=-1)


class _MatrixSums(Fused):
    """:func:`plain_sums` with fewer passes over the logits, and fewer copies, than autograd."""

    @staticmethod
    def forward(z: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        part = Part.of(z.clone(), labels)
        return part.own, part.top + part.log_sum, part.total, part.top, part.log_sum

    @staticmethod
    def setup_context(ctx: Any, *args: Any) -> None:
        Fused.setup_context(ctx, *args)
        # Otherwise the zero gradient of an unused total would be added to the whole matrix.
        ctx.set_materialize_grads(False)

    @staticmethod
    @second_derivatives_from(plain_sums)
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        z, labels, _, _, _, top, log_sum = ctx.saved_tensors
        # The first three outputs are the sums; top and log_sum get no gradient.
        return logit_gradient(z, labels, top, log_sum, grads[:3]), None


class Softmax:
    """A softmax over all classes at once, from the N x C matrix of logits."""

    def cross_entropy(
        self, logits: Logits, x: Tensor, parameters: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,).

        Args:
            logits: Computes the logits z.
            x: Embeddings, shape (N, D).
            parameters: Class-wise parameters, shape (C, ...).
            labels: Own classes y, shape (N,), values 0..C-1.
        """
        return F.cross_entropy(logits(x, *parameters), labels, reduction="none")

    def sums(self, logits: Logits, x: Tensor, parameters: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the sums of the softmax; the cross-entropy is ``softplus(others - own)``.

        The arguments are those of :meth:`cross_entropy`.
        """
        # Selected before the logits, so that backward adds the sparse gradient to the dense one.
        label_rows = tuple(select_label_rows(parameter, labels) for parameter in parameters)
        z = logits(x, *parameters)
        # Without a dense gradient to add to, the parameters would get a sparse one, which Adam
        # refuses.
        if not z.requires_grad:
            label_rows = tuple(parameter.index_select(0, labels) for parameter in parameters)
        own, others, total, *_ = _MatrixSums.apply(z, labels)
        return Sums(own, others, total, label_rows)
