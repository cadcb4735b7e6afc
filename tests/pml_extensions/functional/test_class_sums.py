"""Sums over classes against the full batch x classes matrix and autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.tensors import Outputs
from torch import Tensor

from pml_extensions.functional import (
    Cosine,
    DotProduct,
    NegativeDistance,
    Power,
    Scaled,
    View,
    class_sums,
    similarity_matrix,
    unit_vectors,
)

N, C, D = 6, 9, 4
SIMILARITIES: dict[str, Any] = {
    "dot": DotProduct(),
    "cosine": Cosine(),
    "proxy_cosine": Cosine(normalize_embeddings=False),
    "distance": NegativeDistance(),
    "squared": NegativeDistance(Power(2)),
    "root": NegativeDistance(Power(0.5)),
    "scaled": NegativeDistance(Scaled(1.5)),
    "lambda": NegativeDistance(lambda t: torch.log1p(t)),
}


def by_definition(name: str, x: Tensor, p: Tensor) -> Tensor:
    """All similarities, written down directly."""
    if name == "dot":
        return (x[:, None] * p).sum(dim=2)
    if name == "cosine":
        return torch.nn.functional.cosine_similarity(x[:, None], p, dim=2)
    if name == "proxy_cosine":
        return (x[:, None] * p).sum(dim=2) / p.norm(dim=1)
    t = (x[:, None] - p).norm(dim=2)
    return -{
        "distance": t,
        "squared": t**2,
        "root": t.sqrt(),
        "scaled": 1.5 * t,
        "lambda": (1 + t).log(),
    }[name]


def inputs(classes: int = C) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64, requires_grad=True)
    p = torch.randn(classes, D, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(classes, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, p, b, torch.randint(classes, (N,), generator=generator)


def masked_logsumexp(logits: Tensor, labels: Tensor) -> Tensor:
    own = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
    return logits.masked_fill(own, -math.inf).logsumexp(dim=1)


def weighted(x: Tensor) -> Tensor:
    """A scalar whose gradient differs from entry to entry."""
    return (x * torch.arange(1, x.numel() + 1, dtype=x.dtype).view_as(x)).sum()


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("chunk_size", [None, 1, 4, C, 100])
def test_values_and_gradients(name: str, chunk_size: int | None) -> None:
    x, p, b, labels = inputs()
    scale = torch.tensor(1.7, dtype=torch.float64)
    view = View(SIMILARITIES[name], scale)
    sums = class_sums(x, p, labels, [view], bias=b, chunk_size=chunk_size, with_total=True)
    others = masked_logsumexp(1.7 * by_definition(name, x, p) + b, labels)
    torch.testing.assert_close(sums.others[0], others)
    torch.testing.assert_close(sums.own_proxies, p[labels])
    torch.testing.assert_close(sums.total, p.sum(dim=0))
    ours = weighted(sums.others[0]) + weighted(sums.own_proxies) + weighted(sums.total)
    theirs = weighted(others) + weighted(p[labels]) + weighted(p.sum(dim=0))
    torch.testing.assert_close(
        torch.autograd.grad(ours, (x, p, b)), torch.autograd.grad(theirs, (x, p, b))
    )


@pytest.mark.parametrize("name", SIMILARITIES)
def test_matrix_and_pairs(name: str) -> None:
    x, p, _, labels = inputs()
    expected = by_definition(name, x, p)
    torch.testing.assert_close(similarity_matrix(SIMILARITIES[name], x, p), expected)
    own = expected.gather(1, labels.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(SIMILARITIES[name].paired(x, p[labels]), own)
    torch.testing.assert_close(
        torch.autograd.grad(
            weighted(similarity_matrix(SIMILARITIES[name], x, p)), (x, p), retain_graph=True
        ),
        torch.autograd.grad(weighted(expected), (x, p)),
    )


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_views_and_a_stopped_one(order: tuple[int, int], chunk_size: int | None) -> None:
    x, p, _, labels = inputs()
    views = [View(DotProduct()), View(Cosine(), 3.0, stop_proxy_gradient=True)]
    sums = class_sums(x, p, labels, [views[i] for i in order], chunk_size=chunk_size)
    first = masked_logsumexp(by_definition("dot", x, p), labels)
    second = masked_logsumexp(3 * by_definition("cosine", x, p.detach()), labels)
    ours = weighted(sums.others[order[0]]) + 2 * weighted(sums.others[order[1]])
    theirs = weighted(first) + 2 * weighted(second)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (x, p)), torch.autograd.grad(theirs, (x, p))
    )
    assert sums.total is None


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_only_a_stopped_view_gives_the_proxies_no_gradient(chunk_size: int | None) -> None:
    x, p, _, labels = inputs()
    sums = class_sums(x, p, labels, [View(Cosine(), 3.0, True)], chunk_size=chunk_size)
    grad_x, grad_p = torch.autograd.grad(weighted(sums.others[0]), (x, p))
    assert grad_x.abs().max() > 0
    assert grad_p.abs().max() == 0


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_shift_changes_neither_distances_nor_gradients(chunk_size: int | None) -> None:
    x, p, _, labels = inputs()
    shift = torch.full((D,), 3.0, dtype=torch.float64)
    results = []
    for chosen in (None, shift):
        view = View(NegativeDistance(), 2.0)
        sums = class_sums(x, p, labels, [view], shift=chosen, chunk_size=chunk_size)
        value = weighted(sums.others[0]) + weighted(sums.own_proxies)
        results.append((value, *torch.autograd.grad(value, (x, p))))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_the_classes(name: str, with_bias: bool) -> None:
    samples, classes, chunk_size = 50, 40, 8
    x = torch.randn(samples, D, requires_grad=True)
    p = torch.randn(classes, D, requires_grad=True)
    b = torch.randn(classes, requires_grad=True) if with_bias else None
    labels, view = torch.arange(samples) % classes, View(SIMILARITIES[name], 2.0)
    sizes = {}
    for size in (None, chunk_size):
        with Outputs() as outputs:
            sums = class_sums(x, p, labels, [view], b, chunk_size=size)
            sums.others[0].sum().backward()
        sizes[size] = max(shape.numel() for shape in outputs.shapes)
    assert sizes == {None: samples * classes, chunk_size: samples * chunk_size}


@pytest.mark.parametrize("chunk_size", [None, 300])
@pytest.mark.parametrize("length", [1e4, 1e6, 1e8])
def test_gradient_of_huge_logits_of_close_classes(length: float, chunk_size: int | None) -> None:
    """Where the proxies nearly coincide, weights that do not add up to 1 leave a gradient."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.nn.functional.normalize(torch.randn(64, generator=generator), dim=0)
    proxies = centre + 1e-7 * torch.randn(1000, 64, generator=generator)
    x = torch.nn.functional.normalize(torch.randn(32, 64, generator=generator), dim=1) * length
    labels, grads = torch.arange(32), []
    for dtype in (torch.float32, torch.float64):
        e = x.detach().to(dtype).requires_grad_()
        p = proxies.to(dtype)
        if dtype == torch.float64:  # plain torch
            torch.nn.functional.cross_entropy(e @ p.t(), labels, reduction="sum").backward()
        else:
            sums = class_sums(e, p, labels, [View(DotProduct())], chunk_size=chunk_size)
            own = (e * sums.own_proxies).sum(dim=1)
            torch.nn.functional.softplus(sums.others[0] - own).sum().backward()
        grads.append(float(e.grad.norm()))  # type: ignore[union-attr]
    assert grads[0] < 2 * grads[1]


def test_one_class_leaves_nothing_to_sum() -> None:
    x, p, _, _ = inputs(classes=1)
    sums = class_sums(x, p, torch.zeros(N, dtype=torch.long), [View(DotProduct())])
    assert (sums.others[0] == -math.inf).all()
    grads = torch.autograd.grad(torch.nn.functional.softplus(sums.others[0]).sum(), (x, p))
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("name", ["cosine", "proxy_cosine", "distance", "squared", "root"])
def test_zero_and_coincident_vectors_have_finite_gradients(name: str) -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    p = torch.zeros(4, 3, requires_grad=True)
    sums = class_sums(x, p, torch.tensor([0, 1]), [View(SIMILARITIES[name])])
    assert sums.others[0].isfinite().all()
    grads = torch.autograd.grad(sums.others[0].sum(), (x, p))
    assert all(grad.isfinite().all() for grad in grads)


def test_frozen_inputs_get_no_gradient() -> None:
    x, p, _, labels = inputs()
    frozen = class_sums(x, p.detach(), labels, [View(DotProduct())], chunk_size=2)
    with Outputs() as outputs:
        grad_x = torch.autograd.grad(weighted(frozen.others[0]), x)[0]
    assert p.shape not in outputs.shapes, "no memory for the gradient of all proxies"
    full = class_sums(x, p, labels, [View(DotProduct())])
    torch.testing.assert_close(grad_x, torch.autograd.grad(weighted(full.others[0]), x)[0])


def test_a_second_derivative_is_refused() -> None:
    x, p, _, labels = inputs()
    value = class_sums(x, p, labels, [View(DotProduct())]).others[0].sum()
    (grad,) = torch.autograd.grad(value, x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(grad.sum(), x)


@examples(40)
@given(
    chunk_size=st.integers(1, 40),
    classes=st.integers(1, 30),
    scale=st.floats(0.01, 300),
    name=st.sampled_from(["dot", "cosine", "distance"]),
    seed=st.integers(0, 1000),
)
def test_any_chunk_size_gives_the_same(
    chunk_size: int, classes: int, scale: float, name: str, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    p = torch.randn(classes, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(classes, (5,), generator=generator)
    results = []
    for size in (None, chunk_size):
        sums = class_sums(x, p, labels, [View(SIMILARITIES[name], scale)], chunk_size=size)
        value = torch.nn.functional.softplus(sums.others[0]).sum()
        results.append((sums.others[0], *torch.autograd.grad(value, (x, p))))
    torch.testing.assert_close(results[0], results[1])


def test_unit_vectors_before_or_in_the_similarity() -> None:
    x, p, _, labels = inputs()
    inside = class_sums(x, p, labels, [View(Cosine(), 5.0)]).others[0]
    outside = class_sums(5 * unit_vectors(x), p, labels, [View(SIMILARITIES["proxy_cosine"])])
    torch.testing.assert_close(inside, outside.others[0])
