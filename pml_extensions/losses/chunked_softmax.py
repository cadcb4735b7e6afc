"""Sums of a softmax over very many classes, without ever holding a batch x classes matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._common import Logits, Softmax, Sums, positive_integer, softplus, without_autocast

#: A term e^this of a softmax, 2e-35, changes no sum, yet is no denormal number in float32.
NEGLIGIBLE = -80.0


class ChunkedSoftmax(Softmax):
    """Takes the classes of a softmax so many at a time: same sums, same gradients, less memory.

    The backward pass computes the logits of each chunk again, at the price of one more matrix
    product; what it holds is N x chunk_size, and one gradient of the class-wise parameters. It can
    be differentiated once.

    Args:
        chunk_size: Number of classes taken at a time.

    Raises:
        ValueError: It is no whole number above 0.
    """

    def __init__(self, chunk_size: int = 2048) -> None:
        self.chunk_size = positive_integer("chunk_size", chunk_size)

    def cross_entropy(
        self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,), accurate near 0 as well."""
        sums = self.sums(logits, x, rows, labels)
        return softplus(sums.others - sums.own)

    def sums(self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the parts of the cross-entropy, as :class:`~pml_extensions._common.Softmax`."""
        if torch.compiler.is_compiling():
            return _traceable_sums(logits, self.chunk_size, labels, x, rows)
        own, others, total, *own_rows = _ChunkedSums.apply(
            logits, self.chunk_size, labels, x, *rows
        )
        return Sums(own, others, total, tuple(own_rows))

    def __repr__(self) -> str:
        return f"ChunkedSoftmax({self.chunk_size})"


class _Part(NamedTuple):
    """The sums over some of the classes; ``top + log_sum`` are those of the other classes."""

    own: Tensor
    top: Tensor
    log_sum: Tensor
    total: Tensor

    @classmethod
    def of(cls, z: Tensor, labels: Tensor, start: int) -> _Part:
        """Sum up the logits of the classes from ``start`` on, which are overwritten."""
        place, here = _places(z, labels, start)
        own, total = z.gather(-1, place), z.sum(dim=-1)
        z.scatter_(-1, place, own.masked_fill(here, -torch.inf))
        top = z.amax(dim=-1, keepdim=True)
        terms = z.sub_(top.masked_fill(top == -torch.inf, 0.0)).clamp_(min=NEGLIGIBLE).exp_()
        own = own.masked_fill(~here, 0.0).squeeze(-1)
        return cls(own, top.squeeze(-1), terms.sum(dim=-1).log_(), total)

    def plus(self, other: _Part) -> _Part:
        """Return the sums over the classes of both."""
        top = torch.maximum(self.top, other.top)
        none = top == -torch.inf
        origin = top.masked_fill(none, 0.0)
        terms = [part.log_sum + (part.top - origin) for part in (self, other)]
        log_sum = torch.logaddexp(*terms).masked_fill(none, 0.0)
        return _Part(self.own + other.own, top, log_sum, self.total + other.total)


class _ChunkedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Logits, size: int, labels: Tensor, x: Tensor, *rows: Tensor
    ) -> tuple[Tensor, ...]:
        sums: _Part | None = None
        for start, chunk in _chunks(rows, size):
            part = _Part.of(logits(x, *chunk), labels, start)
            sums = part if sums is None else sums.plus(part)
        assert sums is not None
        ctx.save_for_backward(labels, sums.top, sums.log_sum, x, *rows)
        ctx.logits, ctx.size = logits, size
        ctx.set_materialize_grads(False)
        own_rows = [row.index_select(0, labels) for row in rows]
        return sums.own, sums.top + sums.log_sum, sums.total, *own_rows

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        labels, top, log_sum, x, *rows = ctx.saved_tensors
        grad_own, grad_others, grad_total, *grad_own_rows = grads
        wanted = ctx.needs_input_grad[3:]
        leaf = x.detach().requires_grad_(wanted[0])
        grad_x = torch.zeros_like(x) if wanted[0] else None
        grad_rows = [
            torch.empty_like(row) if wants else None
            for row, wants in zip(rows, wanted[1:], strict=True)
        ]
        # Where there is no other class the sum is minus infinity, and its gradient must be zero.
        top = top.masked_fill(top == -torch.inf, 0.0).unsqueeze(-1)
        # With the logarithm added to a large maximum, the terms would not add up to 1.
        weight = torch.exp(-log_sum) * (0.0 if grad_others is None else grad_others)
        for start, chunk in _chunks(rows, ctx.size):
            leaves = [
                row.detach().requires_grad_(wants)
                for row, wants in zip(chunk, wanted[1:], strict=True)
            ]
            with torch.enable_grad(), without_autocast(x):
                z = ctx.logits(leaf, *leaves)
            place, here = _places(z, labels, start)
            grad_z = _exp(z.detach() - top).mul_(weight.unsqueeze(-1))
            mine = grad_z.gather(-1, place).masked_fill(here, 0.0)
            if grad_own is not None:
                mine += grad_own.unsqueeze(-1) * here
            grad_z.scatter_(-1, place, mine)
            if grad_total is not None:
                grad_z += grad_total.unsqueeze(-1)
            inputs = [one for one in (leaf, *leaves) if one.requires_grad]
            found = iter(torch.autograd.grad(z, inputs, grad_z))
            if grad_x is not None:
                grad_x += next(found)
            for out in grad_rows:
                if out is not None:
                    out[start : start + ctx.size] = next(found)
        for out, own_rows in zip(grad_rows, grad_own_rows, strict=True):
            if out is not None and own_rows is not None:
                out.index_add_(0, labels, own_rows)
        return None, None, None, grad_x, *grad_rows


def _traceable_sums(
    logits: Logits, size: int, labels: Tensor, x: Tensor, rows: Sequence[Tensor]
) -> Sums:
    """Return the same for torch.compile, which follows no derivative within a backward pass."""

    def part(start: int, *chunk: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = logits(x, *chunk)
        place, here = _places(z, labels, start)
        own = z.gather(-1, place)
        others = z.scatter(-1, place, own.masked_fill(here, -torch.inf)).logsumexp(dim=-1)
        return own.masked_fill(~here, 0.0).squeeze(-1), others, z.sum(dim=-1)

    parts = [
        checkpoint(part, start, *chunk, use_reentrant=False, preserve_rng_state=False)
        for start, chunk in _chunks(rows, size)
    ]
    own, others, total = (torch.stack(values) for values in zip(*parts, strict=True))
    own_rows = tuple(row.index_select(0, labels) for row in rows)
    return Sums(own.sum(dim=0), others.logsumexp(dim=0), total.sum(dim=0), own_rows)


def _exp(x: Tensor) -> Tensor:
    """Return e^x in place, with zero where it is negligible: products of denormals are slow."""
    x = x.clamp_(min=NEGLIGIBLE).exp_()
    return x.masked_fill_(x <= math.exp(NEGLIGIBLE) * 1.001, 0.0)


def _chunks(rows: Sequence[Tensor], size: int) -> Iterator[tuple[int, list[Tensor]]]:
    for start in range(0, len(rows[0]), size):
        yield start, [row[start : start + size] for row in rows]


def _places(z: Tensor, labels: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Return where in ``z`` each sample's class is, or any place if elsewhere, and whether."""
    place = (labels - start).expand(z.shape[:-1]).unsqueeze(-1)
    here = (place >= 0) & (place < z.shape[-1])
    return place.clamp(0, z.shape[-1] - 1), here
