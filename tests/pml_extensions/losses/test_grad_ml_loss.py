"""GradMLLoss: against explicit loops over quadruples."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.reducers import DoNothingReducer, MeanReducer
from torch import Tensor

from pml_extensions.losses import GradMLLoss
from pml_extensions.losses.grad_ml_loss import disjoint_quadruples


def embeddings(n: int) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randn(n, 3, generator=generator, dtype=torch.float64)


def quadruple(x: Tensor, q: tuple[int, int, int, int], k: float, w: float) -> float:
    x1, x2, y1, y2 = (x[i] for i in q)
    between = sum((a - b).norm() ** k for a in (x1, x2) for b in (y1, y2))
    return float((x1 - x2).norm() ** k + (y1 - y2).norm() ** k - w * between)


def test_disjoint_quadruples_by_hand() -> None:
    #       0  1  2  3  4  5  6  7  8  9 10 11 12
    labels = [7, 7, 3, 7, 5, 3, 5, 7, 5, 5, 3, 9, 3]
    # Round 0: 7 (0, 1), 3 (2, 5), 5 (4, 6); round 1: 7 (3, 7), 3 (10, 12), 5 (8, 9).
    assert disjoint_quadruples(labels) == [(0, 1, 2, 5), (3, 7, 10, 12)]
    assert disjoint_quadruples([1, 1, 1, 1]) == []
    assert disjoint_quadruples([]) == []
    # A class with more pairs than the others never meets itself.
    assert disjoint_quadruples([0, 0, 0, 0, 1, 1]) == [(0, 1, 4, 5)]


@pytest.mark.parametrize(("k", "w"), [(1.0, 1.0), (2.0, 0.5), (2.75, 1.3)])
def test_disjoint_equals_a_loop(k: float, w: float) -> None:
    labels = torch.tensor([7, 7, 3, 7, 5, 3, 5, 7, 5, 5, 3, 9, 3])
    x = embeddings(13)
    unit = F.normalize(x)
    expected = [quadruple(unit, q, k, w) for q in ((0, 1, 2, 5), (3, 7, 10, 12))]
    loss = GradMLLoss(k, w, reducer=DoNothingReducer())
    result = loss(x, labels)["loss"]
    torch.testing.assert_close(result["losses"], torch.tensor(expected, dtype=torch.float64))
    assert result["indices"].tolist() == [0, 3]
    assert loss.num_unused_samples == 5


@pytest.mark.parametrize(("k", "w"), [(1.0, 1.0), (2.0, 0.5), (2.75, 1.3)])
def test_all_equals_a_loop_over_unbalanced_classes(k: float, w: float) -> None:
    labels = torch.tensor([4, 0, 4, 2, 0, 2, 2, 9, 4, 4])
    x = embeddings(10)
    unit = F.normalize(x)
    members = {c: [i for i in range(10) if labels[i] == c] for c in (0, 2, 4)}
    expected = []
    for a, b in itertools.combinations(members, 2):
        values = [
            quadruple(unit, (*pair, *other), k, w)
            for pair in itertools.combinations(members[a], 2)
            for other in itertools.combinations(members[b], 2)
        ]
        expected.append(sum(values) / len(values))
    loss = GradMLLoss(k, w, quadruples="all", reducer=DoNothingReducer())
    result = loss(x, labels)["loss"]
    torch.testing.assert_close(result["losses"], torch.tensor(expected, dtype=torch.float64))
    assert result["indices"].tolist() == [1, 1, 3]
    assert loss.num_unused_samples == 1


def test_closed_form_for_squares() -> None:
    x, w = embeddings(4), 0.7
    unit = F.normalize(x)
    within = (unit[0] - unit[1]).square().sum() + (unit[2] - unit[3]).square().sum()
    means = (unit[:2].mean(0) - unit[2:].mean(0)).square().sum()
    value = GradMLLoss(2.0, w)(x, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(value, (1 - w) * within - 4 * w * means)


@pytest.mark.parametrize("quadruples", ["disjoint", "all"])
@pytest.mark.parametrize("k", [1.0, 2.0, 2.5])
def test_gradcheck(quadruples: Any, k: float) -> None:
    loss = GradMLLoss(k, quadruples=quadruples)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])
    x = embeddings(8).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), (x,))


@pytest.mark.parametrize("quadruples", ["disjoint", "all"])
def test_miner_weights_are_averaged_over_an_entry(quadruples: Any) -> None:
    x, labels = embeddings(8), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    pairs = (torch.tensor([0, 0, 4]), torch.tensor([1, 1, 5]), torch.tensor([0]), torch.tensor([2]))
    # Named 3, 2, 1, 0, 1, 1, 0 and 0 times.
    weights = torch.tensor([3, 2, 1, 0, 1, 1, 0, 0], dtype=torch.float64) / 3
    loss = GradMLLoss(quadruples=quadruples, reducer=DoNothingReducer())
    plain = loss(x, labels)["loss"]["losses"]
    classes = [(0, 1), (2, 3)] if quadruples == "disjoint" else itertools.combinations(range(4), 2)
    expected = [
        (weights[[2 * a, 2 * a + 1, 2 * b, 2 * b + 1]].mean() * value).item()
        for (a, b), value in zip(classes, plain, strict=True)
    ]
    weighted = loss(x, labels, pairs)["loss"]["losses"]
    torch.testing.assert_close(weighted, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
@pytest.mark.parametrize("quadruples", ["disjoint", "all"])
def test_a_batch_without_quadruples_has_loss_zero(labels: list[int], quadruples: Any) -> None:
    x = embeddings(4).requires_grad_()
    value = GradMLLoss(quadruples=quadruples, reducer=MeanReducer())(x, torch.tensor(labels))
    value.backward()
    assert value.item() == 0
    assert x.grad is not None
    assert x.grad.abs().max() == 0


def test_raw_embeddings_warn() -> None:
    with pytest.warns(UserWarning, match="no lower bound"):
        GradMLLoss(normalize_embeddings=False)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 0.5}, "k must be finite and at least 1"),
        ({"w": -1}, "w must be finite and at least 0"),
        ({"quadruples": "some"}, "quadruples must be one of 'disjoint', 'all'"),
        ({"normalize_embeddings": "yes"}, "normalize_embeddings must be one of True, False"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GradMLLoss(**kwargs)
