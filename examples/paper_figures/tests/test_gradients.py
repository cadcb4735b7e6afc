"""Gradients of single samples: against autograd, at their limits, and which samples are shown."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from examples.paper_figures.gradients import (
    hard_and_easy,
    linear_gradients,
    normalized_gradients,
)
from pml_extensions.functional import unit_vectors
from pml_extensions.losses import HeatedUpSoftmaxLoss

GENERATOR = torch.Generator().manual_seed(3)
DIRECTIONS = unit_vectors(torch.randn(6, 2, generator=GENERATOR, dtype=torch.float64))
WEIGHTS = unit_vectors(torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64))
LABELS = torch.tensor([0, 1, 2, 3, 4, 0])
ALPHAS = torch.tensor([0.25, 4.0, 16.0, 64.0], dtype=torch.float64)


def test_equation_3_is_what_autograd_gives_for_the_unit_embedding() -> None:
    full, _ = normalized_gradients(DIRECTIONS, WEIGHTS, LABELS, ALPHAS)
    for row, alpha in enumerate(ALPHAS):
        f = DIRECTIONS.clone().requires_grad_()
        F.cross_entropy(alpha * f @ WEIGHTS.t(), LABELS, reduction="sum").backward()
        assert f.grad is not None
        assert full[row].tolist() == pytest.approx(f.grad.norm(dim=1).tolist(), rel=1e-9)


def test_the_part_along_the_circle_is_what_our_loss_hands_to_the_network() -> None:
    _, along = normalized_gradients(DIRECTIONS, WEIGHTS, LABELS, ALPHAS)
    for row, alpha in enumerate(ALPHAS):
        loss = HeatedUpSoftmaxLoss(5, 2, alpha=float(alpha))
        loss.proxies.data = WEIGHTS.clone()
        f = DIRECTIONS.clone().requires_grad_()
        (loss(f, LABELS) * len(f)).backward()
        assert f.grad is not None
        assert along[row].tolist() == pytest.approx(f.grad.norm(dim=1).tolist(), rel=1e-7)


def test_limits_of_alpha() -> None:
    # Class 0 at 0 degrees, class 1 at 90; the sample at 30 degrees is easy for 0, hard for 1.
    weights = torch.eye(2, dtype=torch.float64)
    turn = math.radians(30)
    direction = torch.tensor([[math.cos(turn), math.sin(turn)]], dtype=torch.float64)
    alphas = torch.tensor([1e-6, 1e3], dtype=torch.float64)
    easy, _ = normalized_gradients(direction, weights, torch.tensor([0]), alphas)
    hard, _ = normalized_gradients(direction, weights, torch.tensor([1]), alphas)
    gap = math.sqrt(2)  # |w_0 - w_1|
    assert float(easy[0]) == pytest.approx(1e-6 * gap / 2, rel=1e-5)
    assert float(hard[0]) == pytest.approx(1e-6 * gap / 2, rel=1e-5)
    assert float(hard[1]) == pytest.approx(1e3 * gap, rel=1e-12)
    # Far below what 1 - p can say in float64.
    expected = 1e3 * gap * math.exp(-1e3 * (math.cos(turn) - math.sin(turn)))
    assert float(easy[1]) == pytest.approx(expected, rel=1e-6)
    assert 0 < expected < 1e-150


def test_against_the_norm_the_gradient_is_autograds() -> None:
    bias = torch.linspace(-1, 1, 5, dtype=torch.float64)
    norms = torch.tensor([0.5, 3.0, 40.0], dtype=torch.float64)
    actual = linear_gradients(DIRECTIONS, 2 * WEIGHTS, bias, LABELS, norms)
    for row, norm in enumerate(norms):
        f = (norm * DIRECTIONS).requires_grad_()
        F.cross_entropy(f @ (2 * WEIGHTS).t() + bias, LABELS, reduction="sum").backward()
        assert f.grad is not None
        assert actual[row].tolist() == pytest.approx(f.grad.norm(dim=1).tolist(), rel=1e-6)


def test_hard_and_easy_samples_by_margin() -> None:
    own = torch.tensor([0.0, 5, 1, -3, 2, 7, -1, 3, 4, 6, -2])
    logits = torch.stack([own, torch.zeros_like(own)], dim=1)
    labels = torch.zeros(len(own), dtype=torch.long)
    hard, easy = hard_and_easy(logits, labels)
    assert own[hard].tolist() == [-3, -2, -1]
    assert own[easy].tolist() == [1, 4, 6]
    # Four hard ones (the tie counts): places 0, 1 and 2 of four; seven easy: 0, 3 and 5.


def test_without_hard_samples_there_are_none() -> None:
    logits = torch.tensor([[2.0, 0], [3, 0]])
    hard, easy = hard_and_easy(logits, torch.zeros(2, dtype=torch.long))
    assert hard == []
    assert [float(logits[i, 0]) for i in easy] == [2]
