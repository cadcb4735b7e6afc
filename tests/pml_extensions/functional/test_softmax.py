"""Cross-entropy and log-sum-exp against torch and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from pml_extensions.functional import (
    cross_entropy,
    logsumexp_without_own_class,
    smoothing_weights,
)

LABELS = torch.tensor([2, 0, 1])
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("eps", [0.0, 0.25])
def test_cross_entropy_equals_torchs(eps: float) -> None:
    weights = smoothing_weights(4, eps, "torch")
    torch.testing.assert_close(
        cross_entropy(LOGITS, LABELS, *weights),
        F.cross_entropy(LOGITS, LABELS, label_smoothing=eps, reduction="none"),
    )


def test_no_label_is_ignored() -> None:
    with pytest.raises((IndexError, RuntimeError)):
        cross_entropy(LOGITS, torch.tensor([0, 1, -100]))


@pytest.mark.parametrize(
    ("convention", "expected"), [("official", (0.8, 0.05)), ("torch", (0.84, 0.04))]
)
def test_smoothing_weights(convention: str, expected: tuple[float, float]) -> None:
    assert smoothing_weights(5, 0.2, convention) == pytest.approx(expected)  # type: ignore[arg-type]
    assert smoothing_weights(1, 0.2, convention) == (1.0, 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [0.5, 30.0, 1e4])
def test_logsumexp_without_own_class(gamma: float) -> None:
    result = logsumexp_without_own_class(LOGITS, LABELS, gamma)
    for row, label, value in zip(LOGITS.tolist(), LABELS.tolist(), result.tolist(), strict=True):
        others = [s for j, s in enumerate(row) if j != label]
        top = max(others)
        expected = top + math.log(sum(math.exp(gamma * (s - top)) for s in others)) / gamma
        assert value == pytest.approx(expected, rel=1e-12)


def test_logsumexp_of_no_class_has_zero_gradient() -> None:
    similarities = torch.ones(2, 1, requires_grad=True)
    result = logsumexp_without_own_class(similarities, torch.tensor([0, 0]), 3.0)
    assert (result == -math.inf).all()
    F.softplus(result - similarities[:, 0]).sum().backward()
    assert similarities.grad is not None
    assert (similarities.grad == 0).all()
