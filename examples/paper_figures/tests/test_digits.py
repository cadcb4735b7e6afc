"""Spreads, accuracies and texts of the ten-class figures."""

from __future__ import annotations

import math

import pytest
import torch

from examples.paper_figures.digits import (
    accuracy,
    add_rows,
    angular_spread,
    class_directions,
    mean_text,
    rows_where,
)


def directions(*degrees: float) -> torch.Tensor:
    turn = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def test_angular_spread_is_the_mean_angle_to_the_class_mean_whatever_the_lengths() -> None:
    # Class 0 at 0 and 20 degrees: 10 from its mean; class 1 at 90 and 150: 30 from its mean.
    x = directions(0, 20, 90, 150) * torch.tensor([[1.0], [50.0], [3.0], [0.2]])
    labels = torch.tensor([0, 0, 1, 1])
    assert angular_spread(x, labels) == pytest.approx(20)
    expected = directions(10, 120)
    assert torch.allclose(class_directions(x, labels), expected)


def test_angular_spread_of_one_direction_a_class_is_zero() -> None:
    # Not exactly: the arc cosine of 1 - 1e-16 is 1e-8.
    assert angular_spread(directions(3, 3, 70), torch.tensor([0, 0, 1])) == pytest.approx(
        0, abs=1e-5
    )


def test_accuracy_in_percent() -> None:
    logits = torch.tensor([[1.0, 2], [3, 0], [0, 1], [0, 5]])
    assert accuracy(logits, torch.tensor([1, 0, 0, 1])) == 75.0


def test_mean_text_has_the_t_interval_of_the_sample() -> None:
    # n = 3: t(0.975, 2) = 4.302653; s = 1.
    assert mean_text([1.0, 2.0, 3.0], "°", 2) == f"2.00 ± {4.302653 / math.sqrt(3):.2f}°"
    assert mean_text([7.0], " %") == "7.0 %"
    assert mean_text([-0.04, 0.02]).startswith("0.0 ± "), "no sign on a zero"


def test_rows_are_added_and_found() -> None:
    table: dict[str, list[object]] = {}
    add_rows(table, 2, kind="a", x=torch.tensor([1.0, 2.0]))
    add_rows(table, 1, kind="b", x=[3.0])
    assert table == {"kind": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]}
    assert rows_where(table, kind="a", x=2.0) == {"kind": ["a"], "x": [2.0]}
