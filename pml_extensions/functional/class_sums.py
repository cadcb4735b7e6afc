"""Sums over all classes of a softmax without ever holding a batch x classes matrix."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pml_extensions.functional.precision import without_autocast
from pml_extensions.functional.similarities import NegativeDistance, Similarity, squared_lengths
from pml_extensions.functional.softmax import NEGLIGIBLE, logsumexp_parts


class View(NamedTuple):
    """One softmax over the classes: its similarity and what multiplies it.

    ``stop_proxy_gradient`` treats the proxies as constants.
    """

    similarity: Similarity
    scale: Tensor | float | None = None
    stop_proxy_gradient: bool = False


class ClassSums(NamedTuple):
    """What :func:`class_sums` returns.

    ``others`` holds one tensor of shape (N,) for each view,
    ``own_proxies`` is of shape (N, D) and ``total`` of shape (D,) or None.
    """

    others: tuple[Tensor, ...]
    own_proxies: Tensor
    total: Tensor | None


def class_sums(
    x: Tensor,
    proxies: Tensor,
    labels: Tensor,
    views: Sequence[View],
    bias: Tensor | None = None,
    shift: Tensor | None = None,
    chunk_size: int | None = None,
    with_total: bool = False,
) -> ClassSums:
    r"""Return :math:`\ln \sum_{j \ne y_i} e^{s \cdot sim(x_i, p_j) + b_j}` for each view.

    All views share one product of ``x`` and ``proxies`` in each direction. What else a loss needs
    of the proxies (those of the own classes, their total) comes from here as well, because each
    would otherwise make one more gradient of the shape of ``proxies``.

    Args:
        x: Embeddings, shape (N, D), float32 or float64.
        proxies: Shape (C, D), same dtype.
        labels: Own classes, shape (N,), values 0..C-1.
        views: The softmaxes wanted.
        bias: Shape (C,), added in every view.
        shift: Shape (D,), subtracted from ``x`` and ``proxies`` before they are compared. Only
            for similarities that do not change by it (distances), to which it saves digits; it
            gets no gradient.
        chunk_size: Number of classes taken at a time. None takes all at once and keeps their
            N x C products for the backward pass; otherwise N x chunk_size is all there ever is,
            and the backward pass computes the products again.
        with_total: Whether the sum of all proxies is wanted.

    Returns:
        The sums; minus infinity where there is no other class. They can be differentiated once,
        with respect to ``x``, ``proxies`` and ``bias``, not the scales.
    """
    scales = [None if v.scale is None else torch.as_tensor(v.scale).to(x) for v in views]
    size = len(proxies) if chunk_size is None else min(chunk_size, len(proxies))
    *others, own_proxies, total = _ClassSums.apply(
        x,
        proxies,
        labels,
        bias,
        None if shift is None else shift.detach(),
        tuple(view.similarity for view in views),
        tuple(view.stop_proxy_gradient for view in views),
        size,
        with_total,
        *scales,
    )
    return ClassSums(tuple(others), own_proxies, total if with_total else None)


class _ClassSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        proxies: Tensor,
        labels: Tensor,
        bias: Tensor | None,
        shift: Tensor | None,
        similarities: tuple[Similarity, ...],
        stops: tuple[bool, ...],
        size: int,
        with_total: bool,
        *scales: Tensor | None,
    ) -> tuple[Tensor, ...]:
        shifted = x if shift is None else x - shift
        x_squared = squared_lengths(shifted).unsqueeze(1)
        p_squared = proxies.new_empty(len(proxies))
        sums = [
            _LogSum(x.new_full((len(x),), -torch.inf), x.new_zeros(len(x))) for _ in similarities
        ]
        total = x.new_zeros(proxies.shape[1] if with_total else 0)
        products = None
        nearest: list[Tensor] = []
        for start in range(0, len(proxies), size):
            chunk = _chunk(proxies, shift, start, size)
            products = shifted @ chunk.t()
            lengths = p_squared[start : start + size].copy_(squared_lengths(chunk))
            for view, similarity in enumerate(similarities):
                values = similarity.of_products(products, x_squared, lengths)
                logits = _other_logits(values, scales[view], bias, labels, start)
                if isinstance(similarity, NegativeDistance):
                    how = (scales[view], bias, start)
                    nearest += _compare_nearest(similarity, logits, x, proxies, *how)
                sums[view] = sums[view].plus(_LogSum(*logsumexp_parts(logits)))
            if with_total:
                total += proxies[start : start + size].sum(dim=0)
        kept = products if size >= len(proxies) else None
        tops, log_sums = zip(*sums, strict=True)
        inputs = (x, proxies, labels, bias, shift, kept, p_squared)
        ctx.save_for_backward(*inputs, *scales, *tops, *log_sums, *nearest)
        ctx.similarities, ctx.stops, ctx.size = similarities, stops, size
        ctx.with_total = with_total
        return (*(one.top + one.log_sum for one in sums), proxies[labels], total)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, proxies, labels, bias, shift, kept, p_squared, *rest = ctx.saved_tensors
        views = len(ctx.similarities)
        scales, tops, log_sums, nearest = _split(rest, views, views, views)
        saved = iter(nearest)
        *grad_others, grad_own, grad_total = grads
        # Where there is no other class the sum is minus infinity, and its gradient must be zero.
        tops = [top.masked_fill(top == -torch.inf, 0.0).unsqueeze(1) for top in tops]
        # With the logarithm added to a large maximum, the terms would not add up to 1.
        grad_terms = [g * torch.exp(-s) for g, s in zip(grad_others, log_sums, strict=True)]
        shifted = x if shift is None else x - shift
        x_squared = squared_lengths(shifted).unsqueeze(1)
        grad_x, x_part = torch.zeros_like(x), torch.zeros_like(x_squared)
        grad_proxies = torch.empty_like(proxies) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        with without_autocast(x):
            for start in range(0, len(proxies), ctx.size):
                chunk = _chunk(proxies, shift, start, ctx.size)
                stop = start + len(chunk)
                products = shifted @ chunk.t() if kept is None else kept
                lengths = p_squared[start:stop]
                sums = _Accumulated()
                for view, similarity in enumerate(ctx.similarities):
                    values = similarity.of_products(products, x_squared, lengths)
                    grad = _other_logits(values, scales[view], bias, labels, start)
                    if isinstance(similarity, NegativeDistance):
                        near, direct = next(saved), next(saved)
                        grad.scatter_(1, near, direct)
                    grad = _exp(grad.sub_(tops[view])).mul_(grad_terms[view].unsqueeze(1))
                    if grad_bias is not None:
                        grad_bias[start:stop] += grad.sum(dim=0)
                    if scales[view] is not None:
                        grad.mul_(scales[view])
                    if isinstance(similarity, NegativeDistance):
                        of_near = grad.gather(1, near).squeeze(1)
                        grad.scatter_(1, near, 0.0)
                        classes = start + near.squeeze(1)
                        pull = similarity.paired_gradient(of_near, x, proxies[classes])
                        grad_x += pull
                        if not ctx.stops[view]:
                            sums.of_near.append((classes, pull))
                    parts = similarity.backward(grad, products, values, x_squared, lengths)
                    sums.add(parts, ctx.stops[view])
                if sums.to_x is not None:
                    grad_x += sums.to_x @ chunk
                if sums.x_part is not None:
                    x_part += sums.x_part
                if grad_proxies is not None:
                    sums.write_proxy_gradient(grad_proxies[start:stop], shifted, chunk)
                    for classes, pull in sums.of_near:
                        grad_proxies.index_add_(0, classes, pull, alpha=-1)
                    if ctx.with_total:
                        grad_proxies[start:stop] += grad_total
            grad_x.addcmul_(x_part, shifted)
            if grad_proxies is not None:
                grad_proxies.index_add_(0, labels, grad_own)
        return grad_x, grad_proxies, None, grad_bias, *([None] * (5 + views))


class _LogSum(NamedTuple):
    """Logarithms of sums of exponentials: ``top + log_sum``, both of shape (N,)."""

    top: Tensor
    log_sum: Tensor

    def plus(self, other: _LogSum) -> _LogSum:
        top = torch.maximum(self.top, other.top)
        origin = top.masked_fill(top == -torch.inf, 0.0)
        parts = (self.log_sum + (self.top - origin), other.log_sum + (other.top - origin))
        log_sum = torch.logaddexp(*parts)
        return _LogSum(top, log_sum.masked_fill(top == -torch.inf, 0.0))


class _Accumulated:
    """The parts of the gradient that the views of one chunk of classes add up to."""

    def __init__(self) -> None:
        self.to_x: Tensor | None = None
        self.to_p: Tensor | None = None
        self.x_part: Tensor | None = None
        self.p_part: Tensor | None = None
        self.of_near: list[tuple[Tensor, Tensor]] = []

    def add(
        self, parts: tuple[Tensor, Tensor | None, Tensor | None], stop_proxy_gradient: bool
    ) -> None:
        products, x_part, p_part = parts
        self.to_x = _sum(self.to_x, products)
        self.x_part = _sum(self.x_part, x_part)
        if not stop_proxy_gradient:
            self.to_p = _sum(self.to_p, products)
            self.p_part = _sum(self.p_part, p_part)

    def write_proxy_gradient(self, out: Tensor, x: Tensor, chunk: Tensor) -> None:
        if self.to_p is None:
            out.zero_()
        else:
            torch.mm(self.to_p.t(), x, out=out)
        if self.p_part is not None:
            out.addcmul_(self.p_part.t(), chunk)


def _exp(x: Tensor) -> Tensor:
    """Return e^x in place, with zero where it is negligible: products of denormals are slow."""
    x = x.clamp_(min=NEGLIGIBLE).exp_()
    return x.masked_fill_(x <= math.exp(NEGLIGIBLE) * 1.001, 0.0)


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _chunk(proxies: Tensor, shift: Tensor | None, start: int, size: int) -> Tensor:
    chunk = proxies[start : start + size]
    return chunk if shift is None else chunk - shift


def _other_logits(
    values: Tensor, scale: Tensor | None, bias: Tensor | None, labels: Tensor, start: int
) -> Tensor:
    """Return the logits of the classes from ``start`` on, minus infinity at the own class."""
    logits = values.clone() if scale is None else values * scale
    classes = logits.shape[1]
    if bias is not None:
        logits += bias[start : start + classes]
    # Every sample writes one entry, its own value if its class is not here: shapes stay static.
    position = (labels - start).unsqueeze(1)
    here = (position >= 0) & (position < classes)
    position = position.clamp(0, classes - 1)
    return logits.scatter_(1, position, logits.gather(1, position).masked_fill(here, -torch.inf))


def _compare_nearest(
    similarity: NegativeDistance,
    logits: Tensor,
    x: Tensor,
    proxies: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    start: int,
) -> tuple[Tensor, Tensor]:
    """Compare each sample with the nearest other class of a chunk directly.

    One of each row, not all below some distance: shapes stay static.

    Returns:
        The positions of these classes and their logits, which are in ``logits`` by now, (N, 1).
    """
    near = _argmax(logits)
    classes = start + near.squeeze(1)
    direct = similarity.paired(x, proxies[classes])
    if scale is not None:
        direct = direct * scale
    if bias is not None:
        direct = direct + bias[classes]
    empty = logits.gather(1, near) == -torch.inf
    direct = direct.unsqueeze(1).masked_fill(empty, -torch.inf)
    logits.scatter_(1, near, direct)
    return near, direct


def _split(tensors: Sequence[Tensor], *sizes: int) -> list[list[Tensor]]:
    """The first so many, the next so many, ..., and the rest."""
    ends = [0, *itertools.accumulate(sizes), len(tensors)]
    return [list(tensors[a:b]) for a, b in itertools.pairwise(ends)]


def _argmax(x: Tensor) -> Tensor:
    """Return the position of each row's maximum, shape (N, 1).

    On a CPU torch's own takes a hundred times as long as ``amax``; here it sees blocks only.
    """
    width = x.shape[1]
    block = min(64, width)
    whole = width - width % block
    tops = [x[:, :whole].unflatten(1, (-1, block)).amax(dim=2)]
    if whole < width:
        tops.append(x[:, whole:].amax(dim=1, keepdim=True))
    first = torch.cat(tops, dim=1).argmax(dim=1, keepdim=True) * block
    positions = (first + torch.arange(block, device=x.device)).clamp_max(width - 1)
    return positions.gather(1, x.gather(1, positions).argmax(dim=1, keepdim=True))
