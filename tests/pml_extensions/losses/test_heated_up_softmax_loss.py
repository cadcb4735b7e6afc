"""HeatedUpSoftmaxLoss: against PML's normalised softmax and torch's batch normalisation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
from torch import Tensor

from pml_extensions.losses import HeatedUpSoftmaxLoss


def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(12, 4, generator=generator, dtype=torch.float64)
    proxies = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    return x, proxies, torch.arange(12) % 5


def make(proxies: Tensor, **kwargs: Any) -> HeatedUpSoftmaxLoss:
    loss = HeatedUpSoftmaxLoss(*proxies.shape, **kwargs).to(proxies.dtype)
    loss.proxies.data.copy_(proxies)
    return loss


def test_equals_pmls_normalized_softmax() -> None:
    x, proxies, labels = batch()
    ours, peer = make(proxies, alpha=20.0), NormalizedSoftmaxLoss(5, 4, temperature=0.05)
    peer.W.data = proxies.t().clone()
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    value, expected = ours(a, labels), peer(b, labels)
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(a.grad, b.grad)
    torch.testing.assert_close(ours.proxies.grad, peer.W.grad.t())
    torch.testing.assert_close(ours.get_logits(x), peer.get_logits(x))


def test_heating_lowers_alpha() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, alpha=16.0)
    loss.heat(4.0)
    cosines = F.normalize(x) @ F.normalize(proxies).t()
    torch.testing.assert_close(loss(x, labels), F.cross_entropy(4 * cosines, labels))


@pytest.mark.parametrize("alpha", [4.0, 5.0])
def test_heating_never_raises_alpha(alpha: float) -> None:
    loss = HeatedUpSoftmaxLoss(3, 2, alpha=4.0)
    with pytest.raises(ValueError, match="heating lowers alpha, which is 4, but got alpha="):
        loss.heat(alpha)
    assert loss.alpha == 4.0


@pytest.mark.parametrize(("bias", "factor"), [("unscaled", 1.0), ("scaled", 16.0)])
def test_bias_is_added_after_or_before_alpha(bias: Any, factor: float) -> None:
    x, proxies, labels = batch()
    loss = make(proxies, bias=bias)
    assert (loss.bias == 0).all()
    values = torch.linspace(-1, 1, 5, dtype=torch.float64)
    loss.bias.data.copy_(values)
    cosines = F.normalize(x) @ F.normalize(proxies).t()
    torch.testing.assert_close(loss.get_logits(x), 16 * cosines + factor * values)
    loss(x, labels).backward()
    assert loss.bias.grad.abs().min() > 0


def test_batch_normalisation_follows_torch() -> None:
    x, proxies, labels = batch()
    x = 3 * x + 1
    loss = make(proxies, normalization="bn", bn_shift=True)
    loss.shift.data.copy_(torch.linspace(-1, 1, 4))
    peer = torch.nn.BatchNorm1d(4, eps=1e-3, momentum=0.05, dtype=torch.float64)
    peer.bias.data.copy_(loss.shift.data)
    directions = F.normalize(proxies).t()
    for step in (x, x + 2, x[:3]):
        expected = F.cross_entropy(16 * peer(step) / 2 @ directions, labels[: len(step)])
        torch.testing.assert_close(loss(step, labels[: len(step)]), expected)
    torch.testing.assert_close(loss.running_mean, peer.running_mean)
    torch.testing.assert_close(loss.running_var, peer.running_var)
    loss.eval(), peer.eval()
    torch.testing.assert_close(loss.get_features(x), peer(x) / 2)
    torch.testing.assert_close(loss.get_logits(x), 16 * peer(x) / 2 @ directions)


def test_a_network_that_normalises_itself_gives_what_the_loss_would() -> None:
    x, proxies, labels = batch()
    inside = make(proxies, normalization="bn")
    outside = make(proxies, normalization="none", alpha=16 / 2)
    features = 2 * (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-3).sqrt() / 2
    torch.testing.assert_close(outside(features, labels), inside(x, labels))
    assert outside.get_features(x) is x


def test_only_a_training_loss_moves_the_statistics() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, normalization="bn")
    loss.get_logits(x)
    loss.get_features(x)
    loss(x[:1], labels[:1])
    loss.eval()(x, labels)
    assert (loss.running_mean == 0).all()
    loss.train()(x, labels)
    assert (loss.running_mean != 0).all()


def test_statistics_resume() -> None:
    x, proxies, labels = batch()
    loss = make(proxies, normalization="bn")
    loss(x, labels)
    resumed = make(proxies, normalization="bn")
    resumed.load_state_dict(loss.state_dict())
    torch.testing.assert_close(resumed.eval()(x, labels), loss.eval()(x, labels), rtol=0, atol=0)


def test_features_are_unit_vectors() -> None:
    x, proxies, _ = batch()
    torch.testing.assert_close(make(proxies).get_features(x), F.normalize(x))


def test_proxies_start_near_unit_length() -> None:
    torch.manual_seed(0)
    lengths = HeatedUpSoftmaxLoss(200, 256).proxies.norm(dim=1)
    assert lengths.mean().item() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"alpha": 0}, "alpha must be finite and greater than 0"),
        ({"alpha": math.inf}, "alpha must be finite"),
        ({"bias": True}, "bias must be one of False, 'unscaled', 'scaled', but got bias=True"),
        ({"normalization": "ln"}, "normalization must be one of 'l2', 'bn'"),
        ({"bn_shift": True}, 'bn_shift=True needs normalization="bn"'),
        ({"bn_eps": 0}, "bn_eps must be"),
        ({"bn_momentum": 1.5}, "bn_momentum must be"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeatedUpSoftmaxLoss(3, 2, **kwargs)
