"""NormalizedSoftmaxLoss: PML's loss, its checkpoints and its identities."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from pml_extensions.losses import (
    HeatedUpSoftmaxLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
)

CLASSES, SIZE = 6, 4


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(9, SIZE, generator=generator, dtype=torch.float64)
    return x, torch.arange(9) % CLASSES


def results(loss: Any, proxies: Tensor, x: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    leaf = x.clone().requires_grad_()
    value = loss(leaf, labels)
    return value, *torch.autograd.grad(value, (leaf, proxies))


@pytest.mark.parametrize("temperature", [0.005, 0.05, 1.0])
def test_equals_pmls(temperature: float) -> None:
    x, labels = batch()
    ours = NormalizedSoftmaxLoss(CLASSES, SIZE, temperature).double()
    peer = pml.NormalizedSoftmaxLoss(CLASSES, SIZE, temperature=temperature).double()
    peer.W.data.copy_(ours.W)
    actual, (value, grad_x, grad_w) = (
        results(ours, ours.proxies, x, labels),
        results(peer, peer.W, x, labels),
    )
    torch.testing.assert_close(actual, (value, grad_x, grad_w.t()))
    torch.testing.assert_close(ours.get_logits(x), peer.get_logits(x))


def test_identities_with_the_other_softmaxes() -> None:
    # papers.md section 0: temperature 1/alpha, and ProxyNCA++ of scale s is 2 s^2 times the cosine.
    x, labels = batch()
    reference = NormalizedSoftmaxLoss(CLASSES, SIZE, 1 / 18).double()
    expected = results(reference, reference.proxies, x, labels)
    for loss in (
        HeatedUpSoftmaxLoss(CLASSES, SIZE, alpha=18.0).double(),
        ProxyNCAPlusPlusLoss(CLASSES, SIZE, scale=3.0).double(),
    ):
        loss.proxies.data.copy_(reference.proxies.data)
        torch.testing.assert_close(results(loss, loss.proxies, x, labels), expected)


def test_proxy_nca_plus_plus_equals_pmls_proxy_nca() -> None:
    x, labels = batch()
    ours = ProxyNCAPlusPlusLoss(CLASSES, SIZE, scale=3.0).double()
    peer = pml.ProxyNCALoss(CLASSES, SIZE, softmax_scale=9).double()
    peer.proxies.data.copy_(ours.proxies.data)
    torch.testing.assert_close(
        results(ours, ours.proxies, x, labels), results(peer, peer.proxies, x, labels)
    )


def test_proxy_nca_plus_plus_keeps_samples_that_pml_drops() -> None:
    # papers.md section 0: PML's probability underflows to 0 and the hardest samples vanish.
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    loss = ProxyNCAPlusPlusLoss(2, 2, scale=10.0)
    loss.proxies.data = torch.tensor([[-1.0, 0.0], [1.0, 0.1]])
    value = loss(x, torch.tensor([0, 1]))
    value.backward()
    cosine = 1 / math.sqrt(1.01)
    first, second = 200 * (cosine + 1), math.log1p(math.exp(-20 * cosine))
    assert value.item() == pytest.approx((first + second) / 2, rel=1e-6)
    assert x.grad is not None
    assert x.grad[0].abs().max() > 1


def test_loads_a_checkpoint_of_pmls_loss() -> None:
    x, labels = batch()
    peer = pml.NormalizedSoftmaxLoss(CLASSES, SIZE).double()
    ours = NormalizedSoftmaxLoss(CLASSES, SIZE).double()
    state = peer.state_dict()
    ours.load_state_dict(state)
    assert list(state) == ["W"], "the checkpoint itself stays as it is"
    torch.testing.assert_close(ours(x, labels), peer(x, labels))


def test_initialisations() -> None:
    torch.manual_seed(0)
    assert NormalizedSoftmaxLoss(300, 100).proxies.std().item() == pytest.approx(1, rel=0.02)
    std = ProxyNCAPlusPlusLoss(300, 100).proxies.std().item()
    assert std == pytest.approx(1 / 8, rel=0.02)


@pytest.mark.parametrize("temperature", [0, -1, math.inf, "warm"])
def test_bad_temperature(temperature: Any) -> None:
    with pytest.raises(ValueError, match="temperature must be"):
        NormalizedSoftmaxLoss(3, 2, temperature)
