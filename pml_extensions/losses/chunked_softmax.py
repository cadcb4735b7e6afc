"""Softmax over very many classes, without storing a batch x classes matrix."""

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
    """Computes a softmax in chunks of classes: same values and gradients, less memory.

    The backward pass recomputes the logits of each chunk, which costs one more matrix product; its
    memory is N x chunk_size plus one gradient of the class-wise parameters. Second derivatives
    need the matrix of all logits.

    Args:
        chunk_size: Number of classes in a chunk.

    Raises:
        ValueError: ``chunk_size`` is not a positive integer.
    """

    def __init__(self, chunk_size: int = 2048) -> None:
        self.chunk_size = positive_integer("chunk_size", chunk_size)

    def cross_entropy(
        self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,); accurate also near 0."""
        sums = self.sums(logits, x, rows, labels)
        return softplus(sums.others - sums.own)

    def sums(self, logits: Logits, x: Tensor, rows: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the sums of the softmax; see :meth:`Softmax.sums`."""
        if torch.compiler.is_compiling():
            return _traceable_sums(logits, self.chunk_size, labels, x, rows)
        own, others, total, *label_rows = _ChunkedSums.apply(
            logits, self.chunk_size, labels, x, *rows
        )
        return Sums(own, others, total, tuple(label_rows))

    def __repr__(self) -> str:
        return f"ChunkedSoftmax({self.chunk_size})"


def _merge_parts(a: Part, b: Part) -> Part:
    """Return the sums over the classes of both parts together."""
    top = torch.maximum(a.top, b.top)
    empty = top == -torch.inf
    origin = top.masked_fill(empty, 0.0)
    log_sum = torch.logaddexp(*(part.log_sum + (part.top - origin) for part in (a, b)))
    return Part(a.own + b.own, top, log_sum.masked_fill(empty, 0.0), a.total + b.total)


class _ChunkedSums(torch.autograd.Function):
    """The sums of the softmax, one chunk of classes at a time."""

    @staticmethod
    def forward(
        ctx: Any, logits: Logits, size: int, labels: Tensor, x: Tensor, *rows: Tensor
    ) -> tuple[Tensor, ...]:
        sums = reduce(
            _merge_parts,
            (Part.of(logits(x, *chunk), labels, start) for start, chunk in _chunks(rows, size)),
        )
        ctx.save_for_backward(labels, sums.top, sums.log_sum, x, *rows)
        ctx.logits, ctx.size = logits, size
        ctx.set_materialize_grads(False)
        label_rows = [row.index_select(0, labels) for row in rows]
        return sums.own, sums.top + sums.log_sum, sums.total, *label_rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        labels, top, log_sum, x, *rows = ctx.saved_tensors
        needs_grad = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            # create_graph=True: recompute the outputs in one piece, differentiably.
            def recompute_forward(x: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
                label_rows = (row.index_select(0, labels) for row in rows)
                return *plain_sums(ctx.logits(x, *rows), labels), *label_rows

            return None, None, None, *gradients(recompute_forward, (x, *rows), grads)
        grad_x = torch.zeros_like(x) if needs_grad[0] else None
        grad_rows = [
            torch.empty_like(row) if needed else None
            for row, needed in zip(rows, needs_grad[1:], strict=True)
        ]

        def add_gradients(start: int, chunk: Sequence[Tensor]) -> None:
            """Add the gradients of one chunk; returning frees its memory before the next one."""
            leaves = [
                tensor.detach().requires_grad_(needed)
                for tensor, needed in zip((x, *chunk), needs_grad, strict=True)
            ]
            with torch.enable_grad(), without_autocast(x):
                z = ctx.logits(*leaves)
            grad_z = logit_gradient(z.detach(), labels, top, log_sum, grads[:3], start)
            inputs = [leaf for leaf in leaves if leaf.requires_grad]
            # Logits without gradient, such as those of a detached warp, have zero gradients.
            grads_of_chunk = iter(
                torch.autograd.grad(z, inputs, grad_z)
                if z.requires_grad
                else map(torch.zeros_like, inputs)
            )
            if grad_x is not None:
                grad_x.add_(next(grads_of_chunk))
            for out in grad_rows:
                if out is not None:
                    out[start : start + ctx.size] = next(grads_of_chunk)

        for start, chunk in _chunks(rows, ctx.size):
            add_gradients(start, chunk)
        for out, grad_label_rows in zip(grad_rows, grads[3:], strict=True):
            if out is not None and grad_label_rows is not None:
                out.index_add_(0, labels, grad_label_rows)
        return None, None, None, grad_x, *grad_rows


def _traceable_sums(
    logits: Logits, size: int, labels: Tensor, x: Tensor, rows: Sequence[Tensor]
) -> Sums:
    """Return the sums for torch.compile, which cannot trace ``_ChunkedSums.backward``."""

    def part(start: int, *chunk: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return plain_sums(logits(x, *chunk), labels, start)

    # Dynamo fails if a number that changes between calls is first seen within a checkpoint, so it
    # sees those of ``logits`` here.
    logits(x[:1], *(row[:1] for row in rows))
    parts = [
        checkpoint(part, start, *chunk, use_reentrant=False, preserve_rng_state=False)
        for start, chunk in _chunks(rows, size)
    ]
    own, others, total = (torch.stack(values) for values in zip(*parts, strict=True))
    label_rows = tuple(row.index_select(0, labels) for row in rows)
    return Sums(own.sum(dim=0), others.logsumexp(dim=0), total.sum(dim=0), label_rows)


def _chunks(rows: Sequence[Tensor], size: int) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield each chunk: its first class, and its rows of each class-wise parameter."""
    for start in range(0, len(rows[0]), size):
        yield start, [row[start : start + size] for row in rows]
