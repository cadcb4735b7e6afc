"""Sums of a softmax over very many classes, without ever holding a batch x classes matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._shared.checks import positive_integer
from .._shared.numerics import gradients, softplus, without_autocast
from .._shared.softmax import Logits, Part, Softmax, Sums, logit_gradient, plain_sums


class ChunkedSoftmax(Softmax):
    """Takes the classes of a softmax so many at a time: same sums, same gradients, less memory.

    The backward pass computes the logits of each chunk again, at the price of one more matrix
    product; what it holds is N x chunk_size, and one gradient of the class-wise parameters. Only
    a second derivative takes the matrix of all logits.

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
        """Return the parts of the cross-entropy, as :class:`~pml_extensions.softmax.Softmax`."""
        if torch.compiler.is_compiling():
            return _traceable_sums(logits, self.chunk_size, labels, x, rows)
        own, others, total, *own_rows = _ChunkedSums.apply(
            logits, self.chunk_size, labels, x, *rows
        )
        return Sums(own, others, total, tuple(own_rows))

    def __repr__(self) -> str:
        return f"ChunkedSoftmax({self.chunk_size})"


def _added(a: Part, b: Part) -> Part:
    """Return the sums over the classes of both."""
    top = torch.maximum(a.top, b.top)
    none = top == -torch.inf
    origin = top.masked_fill(none, 0.0)
    log_sum = torch.logaddexp(*(part.log_sum + (part.top - origin) for part in (a, b)))
    return Part(a.own + b.own, top, log_sum.masked_fill(none, 0.0), a.total + b.total)


class _ChunkedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Logits, size: int, labels: Tensor, x: Tensor, *rows: Tensor
    ) -> tuple[Tensor, ...]:
        sums = reduce(
            _added,
            (Part.of(logits(x, *chunk), labels, start) for start, chunk in _chunks(rows, size)),
        )
        ctx.save_for_backward(labels, sums.top, sums.log_sum, x, *rows)
        ctx.logits, ctx.size = logits, size
        ctx.set_materialize_grads(False)
        rows_of_labels = [row.index_select(0, labels) for row in rows]
        return sums.own, sums.top + sums.log_sum, sums.total, *rows_of_labels

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        labels, top, log_sum, x, *rows = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():

            def sums(x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
                own_rows = (row.index_select(0, labels) for row in rows)
                return *plain_sums(ctx.logits(x, *rows), labels), *own_rows

            return None, None, None, *gradients(sums, (x, *rows), grads)
        grad_x = torch.zeros_like(x) if wanted[0] else None
        grad_rows = [
            torch.empty_like(row) if wants else None
            for row, wants in zip(rows, wanted[1:], strict=True)
        ]

        def add_gradients(start: int, chunk: Sequence[Tensor]) -> None:
            """Take the gradients of one chunk, which are gone before those of the next."""
            leaves = [
                one.detach().requires_grad_(wants)
                for one, wants in zip((x, *chunk), wanted, strict=True)
            ]
            with torch.enable_grad(), without_autocast(x):
                z = ctx.logits(*leaves)
            grad_z = logit_gradient(z.detach(), labels, top, log_sum, grads[:3], start)
            inputs = [leaf for leaf in leaves if leaf.requires_grad]
            # A detached warp of these distances needs none.
            found = iter(
                torch.autograd.grad(z, inputs, grad_z)
                if z.requires_grad
                else map(torch.zeros_like, inputs)
            )
            if grad_x is not None:
                grad_x.add_(next(found))
            for out in grad_rows:
                if out is not None:
                    out[start : start + ctx.size] = next(found)

        for start, chunk in _chunks(rows, ctx.size):
            add_gradients(start, chunk)
        for out, grad_own_rows in zip(grad_rows, grads[3:], strict=True):
            if out is not None and grad_own_rows is not None:
                out.index_add_(0, labels, grad_own_rows)
        return None, None, None, grad_x, *grad_rows


def _traceable_sums(
    logits: Logits, size: int, labels: Tensor, x: Tensor, rows: Sequence[Tensor]
) -> Sums:
    """Return the same for torch.compile, which follows no derivative within a backward pass."""

    def part(start: int, *chunk: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return plain_sums(logits(x, *chunk), labels, start)

    # Dynamo fails where a number that changes between calls is first met within a checkpoint.
    logits(x[:1], *(row[:1] for row in rows))
    parts = [
        checkpoint(part, start, *chunk, use_reentrant=False, preserve_rng_state=False)
        for start, chunk in _chunks(rows, size)
    ]
    own, others, total = (torch.stack(values) for values in zip(*parts, strict=True))
    own_rows = tuple(row.index_select(0, labels) for row in rows)
    return Sums(own.sum(dim=0), others.logsumexp(dim=0), total.sum(dim=0), own_rows)


def _chunks(rows: Sequence[Tensor], size: int) -> Iterator[tuple[int, list[Tensor]]]:
    for start in range(0, len(rows[0]), size):
        yield start, [row[start : start + size] for row in rows]
