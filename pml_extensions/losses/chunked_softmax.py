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

    The backward pass recomputes the logits of each chunk, which costs one more matrix product, and
    needs memory for N x chunk_size logits and one gradient of the class-wise parameters. Second
    derivatives need the matrix of all logits.

    Args:
        chunk_size: Number of classes in a chunk.

    Raises:
        ValueError: ``chunk_size`` is not a positive integer.
    """

    def __init__(self, chunk_size: int = 2048) -> None:
        self.chunk_size = positive_integer("chunk_size", chunk_size)

    def cross_entropy(
        self, logits: Logits, x: Tensor, parameters: Sequence[Tensor], labels: Tensor
    ) -> Tensor:
        """Return ``-ln softmax(z)_y`` of each sample, shape (N,); accurate also near 0."""
        sums = self.sums(logits, x, parameters, labels)
        return softplus(sums.others - sums.own)

    def sums(self, logits: Logits, x: Tensor, parameters: Sequence[Tensor], labels: Tensor) -> Sums:
        """Return the sums of the softmax; see :meth:`Softmax.sums`."""
        if torch.compiler.is_compiling():
            return _traceable_sums(logits, self.chunk_size, labels, x, parameters)
        own, others, total, *label_rows = _ChunkedSums.apply(
            logits, self.chunk_size, labels, x, *parameters
        )
        return Sums(own, others, total, tuple(label_rows))

    def __repr__(self) -> str:
        return f"ChunkedSoftmax({self.chunk_size})"


def _merge_parts(a: Part, b: Part) -> Part:
    """Return the :class:`Part` of the classes of both parts."""
    top = torch.maximum(a.top, b.top)
    # log_sum is relative to the larger top. If neither part has another class than the sample's
    # own, top is -inf and log_sum is 0.
    no_others = top == -torch.inf
    origin = top.masked_fill(no_others, 0.0)
    log_sum = torch.logaddexp(*(part.log_sum + (part.top - origin) for part in (a, b)))
    return Part(a.own + b.own, top, log_sum.masked_fill(no_others, 0.0), a.total + b.total)


class _ChunkedSums(torch.autograd.Function):
    """The sums of the softmax, one chunk of classes at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        compute_logits: Logits,
        chunk_size: int,
        labels: Tensor,
        x: Tensor,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        parts = (
            Part.of(compute_logits(x, *chunk), labels, start)
            for start, chunk in _chunks(parameters, chunk_size)
        )
        whole = reduce(_merge_parts, parts)  # the part of all classes
        ctx.save_for_backward(labels, whole.top, whole.log_sum, x, *parameters)
        ctx.compute_logits, ctx.chunk_size = compute_logits, chunk_size
        ctx.set_materialize_grads(False)  # unused outputs have gradient None instead of zeros
        label_rows = [parameter.index_select(0, labels) for parameter in parameters]
        return whole.own, whole.top + whole.log_sum, whole.total, *label_rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        labels, top, log_sum, x, *parameters = ctx.saved_tensors
        # ``grads`` are the gradients of own, others, total and then of each tensor of label rows.
        needs_grad = ctx.needs_input_grad[3:]  # of x and each parameter
        if torch.is_grad_enabled():
            # create_graph=True: recompute the outputs in one piece, differentiably.
            def recompute_forward(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
                label_rows = (parameter.index_select(0, labels) for parameter in parameters)
                return *plain_sums(ctx.compute_logits(x, *parameters), labels), *label_rows

            return None, None, None, *gradients(recompute_forward, (x, *parameters), grads)
        grad_x = torch.zeros_like(x) if needs_grad[0] else None
        parameter_grads = [
            torch.empty_like(parameter) if needed else None  # the chunks write all rows
            for parameter, needed in zip(parameters, needs_grad[1:], strict=True)
        ]

        def add_gradients(start: int, chunk: Sequence[Tensor]) -> None:
            """Add the gradients of one chunk; returning frees its memory before the next one."""
            leaves = [
                tensor.detach().requires_grad_(needed)
                for tensor, needed in zip((x, *chunk), needs_grad, strict=True)
            ]
            with torch.enable_grad(), without_autocast(x):
                z = ctx.compute_logits(*leaves)
            grad_z = logit_gradient(z.detach(), labels, top, log_sum, grads[:3], start)
            inputs = [leaf for leaf in leaves if leaf.requires_grad]
            # In the order of ``inputs``; zero if no logit depends on them, as with a detached warp.
            chunk_grads = iter(
                torch.autograd.grad(z, inputs, grad_z)
                if z.requires_grad
                else map(torch.zeros_like, inputs)
            )
            if grad_x is not None:
                grad_x.add_(next(chunk_grads))
            for grad in parameter_grads:
                if grad is not None:
                    grad[start : start + ctx.chunk_size] = next(chunk_grads)

        for start, chunk in _chunks(parameters, ctx.chunk_size):
            add_gradients(start, chunk)
        for grad, label_rows_grad in zip(parameter_grads, grads[3:], strict=True):
            if grad is not None and label_rows_grad is not None:
                grad.index_add_(0, labels, label_rows_grad)
        # The first three inputs of ``forward`` have no gradient.
        return None, None, None, grad_x, *parameter_grads


def _traceable_sums(
    compute_logits: Logits,
    chunk_size: int,
    labels: Tensor,
    x: Tensor,
    parameters: Sequence[Tensor],
) -> Sums:
    """Return the sums for torch.compile, which cannot trace ``_ChunkedSums.backward``."""

    def sums_of_chunk(start: int, *chunk: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return plain_sums(compute_logits(x, *chunk), labels, start)

    # This call shows Dynamo the numbers in ``compute_logits``: it fails if a number that changes
    # between calls is first seen within a checkpoint.
    compute_logits(x[:1], *(parameter[:1] for parameter in parameters))
    sums_of_chunks = [
        checkpoint(sums_of_chunk, start, *chunk, use_reentrant=False, preserve_rng_state=False)
        for start, chunk in _chunks(parameters, chunk_size)
    ]
    own, others, total = (torch.stack(values) for values in zip(*sums_of_chunks, strict=True))
    label_rows = tuple(parameter.index_select(0, labels) for parameter in parameters)
    return Sums(own.sum(dim=0), others.logsumexp(dim=0), total.sum(dim=0), label_rows)


def _chunks(parameters: Sequence[Tensor], size: int) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield the first class of each chunk, and the chunk's rows of each class-wise parameter."""
    for start in range(0, len(parameters[0]), size):
        yield start, [parameter[start : start + size] for parameter in parameters]
