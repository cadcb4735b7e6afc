"""The four-point diagram: corrected gradients, what is wrong in print, and steps of many sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from examples.paper_figures import grad_ml_update as diagram
from examples.paper_figures.training import Settings

POINTS = diagram.four_points()


def corrected(name: str, points: Tensor) -> Tensor:
    """The gradients in closed form, by hand."""
    x1, x2, y1, y2 = points
    zero = torch.zeros_like(x1)
    if name == "GradML":
        w = diagram.W
        return torch.stack(
            [2 * ((1 - 2 * w) * a - b + w * (c + d)) for a, b, c, d in _each(points)]
        )
    if name == "lifted structure":  # the nearest pair of the classes is x1, y1
        pull = 2 * torch.stack([x1 - x2, x2 - x1, y1 - y2, y2 - y1])
        return pull - 4 * torch.stack([x1 - y1, zero, y1 - x1, zero])
    plain = torch.stack([2 * (y1 - x2), 2 * (x2 - x1), 2 * (x1 - y1), zero])
    if name == "triplet":
        return plain
    half = diagram.DIRECTION / 2
    positive, negative = (x1 - x2).norm(), (x1 - y1).norm()
    c, dk = 1 / (positive * negative), positive / negative**3
    regulariser = torch.stack([c * (x1 - x2) + dk * (y1 - x1), c * (x2 - x1), dk * (x1 - y1), zero])
    return plain - half * regulariser


def _each(points: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    x1, x2, y1, y2 = points
    return [(x1, x2, y1, y2), (x2, x1, y1, y2), (y1, y2, x1, x2), (y2, y1, x1, x2)]


@pytest.mark.parametrize("name", list(diagram.LOSSES))
def test_gradients_are_the_corrected_ones(name: str) -> None:
    actual = diagram.gradients(diagram.LOSSES[name], POINTS)
    assert torch.allclose(actual, corrected(name, POINTS), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("triplet", ["y1"]),
        ("DR-triplet", ["x1", "x2", "y1"]),
        ("lifted structure", ["x1", "y1"]),
        ("GradML", ["x1", "x2", "y1", "y2"]),
    ],
)
def test_these_entries_of_the_printed_table_are_wrong(name: str, wrong: list[str]) -> None:
    printed = diagram.printed_gradients(name, POINTS)
    right = diagram.gradients(diagram.LOSSES[name], POINTS)
    differs = (printed - right).norm(dim=1) > 1e-9
    assert [p for p, d in zip(diagram.ANGLES, differs, strict=True) if d] == wrong


def test_along_the_circle_the_printed_gradients_of_grad_ml_are_right() -> None:
    difference = diagram.printed_gradients("GradML", POINTS) - diagram.gradients(
        diagram.grad_ml, POINTS
    )
    along = difference - (difference * POINTS).sum(dim=1, keepdim=True) * POINTS
    assert along.abs().max() < 1e-12


def test_hinges_are_active_as_the_table_assumes() -> None:
    assert diagram.triplet(POINTS) > 0
    x1, x2, y1, y2 = POINTS
    least = min(float((x - y).square().sum()) for x in (x1, x2) for y in (y1, y2))
    for a, b in ((x1, x2), (y1, y2)):
        assert float((a - b).square().sum()) - least + diagram.MARGIN > 0


@pytest.mark.parametrize("step", [0.01, 0.3, 1.0])
def test_in_the_plane_a_step_of_grad_ml_never_changes_the_distance_within_a_class(
    step: float,
) -> None:
    gradient = diagram.gradients(diagram.grad_ml, POINTS)
    assert diagram.distance_ratio(POINTS, gradient, step, False) == pytest.approx(1, abs=1e-12)


def test_the_triplets_ratio_in_the_plane_is_that_of_the_formula() -> None:
    gradient = diagram.gradients(diagram.triplet, POINTS)
    x1, x2, y1, _ = POINTS
    moved = (x1 - x2) - 0.5 * (2 * (y1 - x2) - 2 * (x2 - x1))
    expected = float(moved.norm() / (x1 - x2).norm())
    assert diagram.distance_ratio(POINTS, gradient, 0.5, False) == pytest.approx(expected)


def test_tables_hold_points_gradients_and_ratios() -> None:
    data = diagram.compute(Settings("quick"))
    assert len(data.tables[""]["loss"]) == 4 * 4
    assert len(data.tables["steps"]["ratio"]) == 4 * 2 * len(diagram.STEPS)
    row = data.tables[""]["loss"].index("triplet") + 2  # y1
    assert data.tables[""]["point"][row] == "y1"
    x1, _, y1, _ = POINTS
    actual = [data.tables[""]["gradient_x"][row], data.tables[""]["gradient_y"][row]]
    assert actual == pytest.approx((2 * (x1 - y1)).tolist())
