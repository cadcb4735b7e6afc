"""Cross-entropies against torch's."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pml_extensions.functional import (
    cross_entropy,
    logsumexp,
    smoothed_cross_entropy,
    smoothing_weights,
    softplus,
)

LABELS = torch.tensor([2, 0, 1])
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)


def own_and_others(logits: Tensor) -> tuple[Tensor, Tensor]:
    own = torch.stack([row[label] for row, label in zip(logits, LABELS, strict=True)])
    others = [
        torch.cat((row[:label], row[label + 1 :])).logsumexp(dim=0)
        for row, label in zip(logits, LABELS.tolist(), strict=True)
    ]
    return own, torch.stack(others)


@pytest.mark.parametrize("eps", [0.0, 0.25])
def test_smoothed_cross_entropy_equals_torchs(eps: float) -> None:
    weights = smoothing_weights(4, eps, "torch")
    torch.testing.assert_close(
        smoothed_cross_entropy(*own_and_others(LOGITS), LOGITS.sum(dim=1), *weights),
        F.cross_entropy(LOGITS, LABELS, label_smoothing=eps, reduction="none"),
    )


def test_cross_entropy_equals_torchs() -> None:
    torch.testing.assert_close(
        cross_entropy(*own_and_others(LOGITS)), F.cross_entropy(LOGITS, LABELS, reduction="none")
    )


def test_tiny_losses_keep_their_digits() -> None:
    value = cross_entropy(torch.tensor([50.0]), torch.tensor([0.0]))
    assert value.item() == pytest.approx(math.exp(-50), rel=1e-5)
    assert softplus(torch.tensor(1e4)).item() == 1e4


def test_no_other_class_is_no_loss() -> None:
    own = torch.tensor([3.0, -3.0], requires_grad=True)
    loss = cross_entropy(own, torch.full((2,), -math.inf))
    loss.sum().backward()
    assert (loss == 0).all()
    assert own.grad is not None
    assert (own.grad == 0).all()


@pytest.mark.parametrize(
    ("convention", "expected"), [("official", (0.8, 0.05)), ("torch", (0.84, 0.04))]
)
def test_smoothing_weights(convention: str, expected: tuple[float, float]) -> None:
    assert smoothing_weights(5, 0.2, convention) == pytest.approx(expected)  # type: ignore[arg-type]
    assert smoothing_weights(1, 0.2, convention) == (1.0, 0.0)  # type: ignore[arg-type]


def test_logsumexp_equals_torchs() -> None:
    x = torch.cat((LOGITS, 200 * LOGITS, torch.full((1, 4), -math.inf, dtype=torch.float64)))
    x[1, 2] = -math.inf
    torch.testing.assert_close(logsumexp(x), torch.logsumexp(x, dim=1))
    assert logsumexp(torch.tensor([[0.0, math.nan]])).isnan()
