"""Sums of a softmax over classes, all at once and in chunks, against definitions and autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.tensors import Outputs
from torch import Tensor

from pml_extensions._shared.numerics import pairwise_distances, softplus, unit_vectors
from pml_extensions._shared.softmax import Softmax
from pml_extensions.functional import Power, Warp
from pml_extensions.losses import ChunkedSoftmax, StopGradientSoftmaxLoss, WarpedSoftmaxLoss

N, C, D = 6, 9, 4


def dot(x: Tensor, p: Tensor) -> Tensor:
    return x @ p.t()


def cosine(x: Tensor, p: Tensor) -> Tensor:
    return unit_vectors(x) @ unit_vectors(p).t()


def proxy_cosine(x: Tensor, p: Tensor) -> Tensor:
    return x @ unit_vectors(p).t()


def distance(x: Tensor, p: Tensor, warp: Warp | None = None) -> Tensor:
    """As the warped softmax takes them: those to the nearest classes directly."""
    loss = WarpedSoftmaxLoss(2, 2, own_warp=Power(1), other_warp=warp)
    return loss.logits(x, p, torch.zeros_like(x[0]))


LOGITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dot": dot,
    "cosine": cosine,
    "proxy_cosine": proxy_cosine,
    "distance": distance,
    "squared": partial(distance, warp=Power(2)),
    "root": partial(distance, warp=Power(0.5)),
    "lambda": partial(distance, warp=torch.log1p),
}


def by_definition(name: str, x: Tensor, p: Tensor) -> Tensor:
    """All similarities, written down directly."""
    if name == "dot":
        return (x[:, None] * p).sum(dim=2)
    if name == "cosine":
        return F.cosine_similarity(x[:, None], p, dim=2)
    if name == "proxy_cosine":
        return (x[:, None] * p).sum(dim=2) / p.norm(dim=1)
    t = (x[:, None] - p).norm(dim=2)
    return -{"distance": t, "squared": t**2, "root": t.sqrt(), "lambda": (1 + t).log()}[name]


def softmax_of(chunk_size: int | None) -> Softmax:
    return Softmax() if chunk_size is None else ChunkedSoftmax(chunk_size)


def inputs(classes: int = C) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    p = torch.randn(classes, D, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(classes, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, p, b, torch.randint(classes, (N,), generator=generator)


def masked_logsumexp(logits: Tensor, labels: Tensor) -> Tensor:
    own = F.one_hot(labels, logits.shape[1]).bool()
    return logits.masked_fill(own, -math.inf).logsumexp(dim=1)


def weighted(x: Tensor) -> Tensor:
    """A scalar whose gradient differs from entry to entry."""
    return (x * torch.arange(1, x.numel() + 1, dtype=x.dtype).view_as(x)).sum()


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("chunk_size", [None, 1, 4, C, 100])
def test_values_and_gradients(name: str, chunk_size: int | None) -> None:
    x, p, b, labels = inputs()

    def logits(x: Tensor, p: Tensor, b: Tensor) -> Tensor:
        return 1.7 * LOGITS[name](x, p) + b

    sums = softmax_of(chunk_size).sums(logits, x, (p, b), labels)
    z = 1.7 * by_definition(name, x, p) + b
    own = z.gather(1, labels.unsqueeze(1)).squeeze(1)
    expected = (own, masked_logsumexp(z, labels), z.sum(dim=1), p[labels], b[labels])
    actual = (*sums[:3], *sums.label_rows)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        torch.autograd.grad(sum(map(weighted, actual)), (x, p, b), retain_graph=True),  # type: ignore[arg-type]
        torch.autograd.grad(sum(map(weighted, expected)), (x, p, b), retain_graph=True),  # type: ignore[arg-type]
    )
    actual = softmax_of(chunk_size).cross_entropy(logits, x, (p, b), labels)
    wanted = F.cross_entropy(z, labels, reduction="none")
    torch.testing.assert_close(actual, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(weighted(actual), (x, p, b)),
        torch.autograd.grad(weighted(wanted), (x, p, b)),
    )


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_two_softmaxes_of_one_product_and_a_constant_one(chunk_size: int | None) -> None:
    x, p, _, labels = inputs()
    both = StopGradientSoftmaxLoss(C, D, gamma=3.0)._product_and_cosine_logits
    others = softmax_of(chunk_size).sums(both, x, (p,), labels).others
    first = masked_logsumexp(by_definition("dot", x, p), labels)
    second = masked_logsumexp(3 * by_definition("cosine", x, p.detach()), labels)
    ours = weighted(others[0]) + 2 * weighted(others[1])
    theirs = weighted(first) + 2 * weighted(second)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (x, p), retain_graph=True), torch.autograd.grad(theirs, (x, p))
    )
    grad_x, grad_p = torch.autograd.grad(weighted(others[1]), (x, p))
    assert grad_x.abs().max() > 0
    assert grad_p.abs().max() == 0


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_shift_changes_neither_distances_nor_gradients(chunk_size: int | None) -> None:
    x, p, _, labels = inputs()
    loss = WarpedSoftmaxLoss(C, D, own_warp=Power(1), scale=2.0)
    results = []
    for shift in (0.0, 3.0):
        logits = partial(loss.logits, origin=torch.full((D,), shift, dtype=torch.float64))
        sums = softmax_of(chunk_size).sums(logits, x, (p,), labels)
        value = weighted(sums.others) + weighted(sums.label_rows[0])
        results.append((value, *torch.autograd.grad(value, (x, p))))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("name", LOGITS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_the_classes(name: str, with_bias: bool) -> None:
    samples, classes, chunk_size = 50, 40, 8
    x = torch.randn(samples, D, requires_grad=True)
    p = torch.randn(classes, D, requires_grad=True)
    b = torch.randn(classes, requires_grad=True)
    rows, labels = (p, b) if with_bias else (p,), torch.arange(samples) % classes

    def logits(x: Tensor, p: Tensor, b: Tensor | float = 0.0) -> Tensor:
        return 2 * LOGITS[name](x, p) + b

    sizes = {}
    for size in (None, chunk_size):
        with Outputs() as outputs:
            softmax_of(size).sums(logits, x, rows, labels).others.sum().backward()
        sizes[size] = max(shape.numel() for shape in outputs.shapes)
    assert sizes == {None: samples * classes, chunk_size: samples * chunk_size}


@pytest.mark.parametrize("chunk_size", [None, 300])
@pytest.mark.parametrize("length", [1e4, 1e6, 1e8])
def test_gradient_of_huge_logits_of_close_classes(length: float, chunk_size: int | None) -> None:
    """Where the proxies nearly coincide, weights that do not add up to 1 leave a gradient."""
    generator = torch.Generator().manual_seed(0)
    centre = F.normalize(torch.randn(64, generator=generator), dim=0)
    proxies = centre + 1e-7 * torch.randn(1000, 64, generator=generator)
    x = F.normalize(torch.randn(32, 64, generator=generator), dim=1) * length
    labels, grads = torch.arange(32), []
    for dtype in (torch.float32, torch.float64):
        e = x.detach().to(dtype).requires_grad_()
        p = proxies.to(dtype)
        if dtype == torch.float64:  # plain torch
            F.cross_entropy(e @ p.t(), labels, reduction="sum").backward()
        else:
            sums = softmax_of(chunk_size).sums(dot, e, (p,), labels)
            own = (e * sums.label_rows[0]).sum(dim=1)
            F.softplus(sums.others - own).sum().backward()
        grads.append(float(e.grad.norm()))  # type: ignore[union-attr]
    assert grads[0] < 2 * grads[1]


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_one_class_leaves_nothing_to_sum(chunk_size: int | None) -> None:
    x, p, _, _ = inputs(classes=1)
    labels = torch.zeros(N, dtype=torch.long)
    sums = softmax_of(chunk_size).sums(dot, x, (p,), labels)
    assert (sums.others == -math.inf).all()
    loss = softmax_of(chunk_size).cross_entropy(dot, x, (p,), labels)
    assert (loss == 0).all()
    for value in (softplus(sums.others - sums.own).sum(), loss.sum()):
        assert all((grad == 0).all() for grad in torch.autograd.grad(value, (x, p)))


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("name", ["cosine", "proxy_cosine", "distance", "squared", "root"])
def test_zero_and_coincident_vectors_have_finite_gradients(
    name: str, chunk_size: int | None
) -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    p = torch.zeros(4, 3, requires_grad=True)
    sums = softmax_of(chunk_size).sums(LOGITS[name], x, (p,), torch.tensor([0, 1]))
    assert sums.others.isfinite().all()
    grads = torch.autograd.grad(sums.others.sum(), (x, p))
    assert all(grad.isfinite().all() for grad in grads)


def test_frozen_inputs_get_no_gradient() -> None:
    x, p, _, labels = inputs()
    frozen = ChunkedSoftmax(2).sums(dot, x, (p.detach(),), labels)
    with Outputs() as outputs:
        grad_x = torch.autograd.grad(weighted(frozen.others), x)[0]
    assert p.shape not in outputs.shapes, "no memory for the gradient of all proxies"
    full = Softmax().sums(dot, x, (p,), labels)
    torch.testing.assert_close(grad_x, torch.autograd.grad(weighted(full.others), x)[0])
    only_p = ChunkedSoftmax(2).sums(dot, x.detach(), (p,), labels)
    torch.testing.assert_close(
        torch.autograd.grad(weighted(only_p.others), p),
        torch.autograd.grad(weighted(Softmax().sums(dot, x, (p,), labels).others), p),
    )


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("classes", [1, C])
def test_second_derivatives(classes: int, chunk_size: int | None) -> None:
    x, p, _, labels = inputs(classes=classes)

    def value(x: Tensor, p: Tensor) -> Tensor:
        sums = softmax_of(chunk_size).sums(dot, x, (p,), labels % classes)
        # Linear in the total, whose incoming gradient is a constant.
        return softplus(sums.others - sums.own).sum() + sums.total.sum()

    assert torch.autograd.gradgradcheck(value, (x, p), fast_mode=True)


def test_tiny_losses_keep_their_digits_in_chunks() -> None:
    x, p = torch.tensor([[50.0]]), torch.tensor([[1.0], [0.0]])
    loss = ChunkedSoftmax(1).cross_entropy(dot, x, (p,), torch.tensor([0]))
    assert loss.item() == pytest.approx(math.exp(-50), rel=1e-5)
    assert softplus(torch.tensor(1e4)).item() == 1e4


def test_negligible_terms_are_zero_in_the_gradient() -> None:
    x, p = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[0.0], [0.0], [-90.0]])
    p.requires_grad_()
    ChunkedSoftmax(2).sums(dot, x, (p,), torch.tensor([0])).others.sum().backward()
    assert p.grad is not None
    assert p.grad.flatten().tolist() == [0.0, 1.0, 0.0]


def test_pairwise_distances_can_be_the_logits() -> None:
    x, p, _, labels = inputs()
    actual: Any = ChunkedSoftmax(4).sums(lambda *a: -pairwise_distances(*a), x, (p,), labels)
    z = by_definition("distance", x, p)
    torch.testing.assert_close(actual.others, masked_logsumexp(z, labels))
