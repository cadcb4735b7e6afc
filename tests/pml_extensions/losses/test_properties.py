"""Properties of the equations, for random batches, class counts and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import ProxyNCALoss
from pytorch_metric_learning.reducers import DoNothingReducer
from support.examples import examples
from support.losses import PROXY_LOSSES
from torch import Tensor

from pml_extensions.losses import (
    NormalizedSoftmaxLoss,
)

SIZE = 4
numbers = {
    "classes": st.integers(1, 12),
    "n": st.integers(2, 15),
    "seed": st.integers(0, 10**6),
}
cases = given(**numbers)
few = examples(15)


def prepared(name: str, classes: int, **kwargs: Any) -> Any:
    torch.manual_seed(classes)
    loss = PROXY_LOSSES[name](classes, SIZE, reducer=DoNothingReducer(), **kwargs).double()
    # Wide apart and with biases, so that no property holds just because all is zero.
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(torch.randn_like(parameter))
    return loss


def batch(classes: int, n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, SIZE, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (n,), generator=generator)


def samples_and_grads(loss: Any, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Per-sample losses of each sub-loss and the gradients of their mean."""
    leaf = x.clone().requires_grad_()
    terms = {name: sub["losses"] for name, sub in loss(leaf, labels).items()}
    loss.zero_grad()
    sum(value.mean() for value in terms.values()).backward()
    assert leaf.grad is not None
    grads = {f"grad of {name}": p.grad.clone() for name, p in loss.named_parameters()}
    return {**{k: v.detach() for k, v in terms.items()}, "grad of x": leaf.grad, **grads}


@pytest.mark.parametrize("name", ["normalized", "proxy_nca_pp", "heated"])
@few
@given(**numbers, factor=st.floats(0.01, 100))
def test_cosine_losses_ignore_lengths(
    name: str, classes: int, n: int, seed: int, factor: float
) -> None:
    x, labels = batch(classes, n, seed)
    plain = samples_and_grads(prepared(name, classes), x, labels)
    loss = prepared(name, classes)
    loss.proxies.data *= 3 / factor
    scaled = samples_and_grads(loss, factor * x, labels)
    torch.testing.assert_close(scaled["loss"], plain["loss"])
    # The gradient shrinks with the length and is tangent to the sphere.
    torch.testing.assert_close(factor * scaled["grad of x"], plain["grad of x"])
    along = (plain["grad of x"] * x).sum(dim=1)
    torch.testing.assert_close(along, torch.zeros_like(along))


@few
@given(**numbers, factor=st.floats(0.01, 100))
def test_the_stop_gradient_term_ignores_lengths(
    classes: int, n: int, seed: int, factor: float
) -> None:
    x, labels = batch(classes, n, seed)
    plain, loss = prepared("sgsl", classes), prepared("sgsl", classes)
    loss.proxies.data *= 3 / factor
    torch.testing.assert_close(
        loss(factor * x, labels)["stop_gradient_loss"]["losses"],
        plain(x, labels)["stop_gradient_loss"]["losses"],
    )


@pytest.mark.parametrize("name", ["warped", "root"])
@few
@cases
def test_distance_losses_ignore_where_the_origin_is(
    name: str, classes: int, n: int, seed: int
) -> None:
    x, labels = batch(classes, n, seed)
    plain = samples_and_grads(prepared(name, classes), x, labels)
    loss, shift = prepared(name, classes), torch.tensor([5.0, -3.0, 2.0, 9.0])
    loss.proxies.data += shift
    torch.testing.assert_close(samples_and_grads(loss, x + shift, labels), plain)


@few
@cases
def test_pmls_default_proxy_nca_is_the_softmax_of_twice_the_cosine(
    classes: int, n: int, seed: int
) -> None:
    # papers.md section 0: not ProxyNCA++, which is 18 times the cosine.
    x, labels = batch(classes, n, seed)
    ours = NormalizedSoftmaxLoss(classes, SIZE, temperature=0.5).double()
    peer = ProxyNCALoss(classes, SIZE).double()
    peer.proxies.data.copy_(ours.proxies.data)
    torch.testing.assert_close(ours(x, labels), peer(x, labels))
