"""The baselines of the papers' tables, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from reality_check.baseline_losses import LinearSoftmaxLoss, RingLoss, UniformByWidth
from reality_check.config import compose
from reality_check.training.methods import MethodSettings, build_loss
from reality_check.utils.errors import UsageError


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(6, 4, generator=generator), torch.tensor([0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_linear_softmax_is_a_classifier(bias: bool, smoothing: float) -> None:
    x, labels = batch()
    torch.manual_seed(1)
    loss = LinearSoftmaxLoss(3, 4, bias=bias, label_smoothing=smoothing)
    logits = [[float(row @ w) for w in loss.classify.weight.detach()] for row in x]
    if bias:
        logits = [
            [z + float(b) for z, b in zip(row, loss.classify.bias.detach(), strict=True)]
            for row in logits
        ]
    expected = 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        normaliser = math.log(sum(math.exp(z) for z in row))
        shares = [smoothing / 3 + (1 - smoothing) * (j == label) for j in range(3)]
        expected -= sum(q * (z - normaliser) for q, z in zip(shares, row, strict=True)) / 6
    assert float(loss(x, labels)) == pytest.approx(expected, rel=1e-5)
    loss(x.bfloat16(), labels).backward()
    assert {p.dtype for p in loss.parameters()} == {torch.float32}


def test_ring_loss_pulls_lengths_to_a_learned_radius() -> None:
    x, labels = batch()
    loss = RingLoss()
    lengths = [math.sqrt(sum(float(v) ** 2 for v in row)) for row in x]
    radius = sum(lengths) / 6
    expected = sum((length - radius) ** 2 for length in lengths) / 12
    assert float(loss(x, labels)) == pytest.approx(expected, rel=1e-5)
    assert float(loss.radius.detach()) == pytest.approx(radius, rel=1e-5)
    value = loss(2 * x, labels)  # the radius is known by now
    assert float(value) == pytest.approx(sum((2 * n - radius) ** 2 for n in lengths) / 12, rel=1e-5)
    value.backward()
    slope = sum(radius - 2 * length for length in lengths) / 6
    assert float(loss.radius.grad) == pytest.approx(slope, rel=1e-5)


def test_proxies_start_uniformly_within_one_over_the_root_of_the_width() -> None:
    proxies = torch.empty(500, 16)
    UniformByWidth()(proxies)
    assert float(proxies.abs().max()) <= 0.25
    assert float(proxies.std()) == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


def settings(**arguments: object) -> MethodSettings:
    return MethodSettings("m", "MultipleLosses", arguments, None, 2, {}, 0.0, True)


def test_a_yaml_can_sum_losses_with_miners_of_their_own() -> None:
    x, labels = batch()
    terms = [
        {"class": "reality_check.baseline_losses.LinearSoftmaxLoss", "bias": False},
        {"class": "TripletMarginLoss", "margin": 0.3},
    ]
    arguments = {"losses": terms, "miners": [None, {"class": "BatchHardMiner"}], "weights": [1, 2]}
    torch.manual_seed(1)
    both = build_loss(settings(**arguments), 3, 4)
    softmax, triplet = both.losses
    mined = both.miners[1](x, labels)
    expected = softmax(x, labels) + 2 * triplet(x, labels, mined)
    torch.testing.assert_close(both(x, labels), expected)
    assert softmax.classify.weight.shape == (3, 4)


def test_a_wrong_argument_within_a_list_names_the_class() -> None:
    wrong = [{"class": "TripletMarginLoss", "margn": 0.3}]
    with pytest.raises(UsageError, match=r"TripletMarginLoss has no argument 'margn'.*'margin'"):
        build_loss(settings(losses=wrong), 3, 4)


def test_the_code_of_classes_within_a_list_counts() -> None:
    from reality_check.launch.prepare import uses_class

    raw = {
        "name": "lists",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": "quick_one_search",
        "methods": [{"loss": "MultipleLosses", "arguments": {"losses": [{"class": "mine.Loss"}]}}],
    }
    assert uses_class(compose(raw).methods[0], "mine.Loss")
