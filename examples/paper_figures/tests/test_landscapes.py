"""Landscapes of the warped softmax, against the equations written out in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from examples.paper_figures import warped_softmax_four_proxies as four
from examples.paper_figures import warped_softmax_landscape as two
from examples.paper_figures.fields import grid, loss_field, warped_softmax
from examples.paper_figures.training import Settings
from pml_extensions.functional import Piecewise, Power, Warp

POINTS = np.array([[0.3, 1.2], [4.0, -0.5], [-3.0, 2.0], [6.5, 0.1], [2.0, 2.9]])


def slopes(name: str, t: float, own: bool) -> tuple[float, float]:
    """Value (inside alpha with m = 1: t itself) and slope of each warp, from the paper."""
    if name == "t²":
        return t**2, 2 * t
    if name == "√t":
        return math.sqrt(t), 0.5 / math.sqrt(t)
    if name.startswith("warp") and own:
        return (t, two.K1) if t < two.ALPHA else (two.K2 * t + (1 - two.K2) * two.ALPHA, two.K2)
    return t, 1.0


def by_hand(name: str, point: np.ndarray, proxies: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss, and f1' (1 - P) u_own - sum P_j f2' u_j: Eq. 4 to 8; proxy 0 is the own one."""
    away = point - proxies
    t = np.linalg.norm(away, axis=1)
    values, slope = zip(*(slopes(name, x, own=j == 0) for j, x in enumerate(t)), strict=True)
    p = np.exp(-np.array(values))
    p /= p.sum()
    unit = away / t[:, None]
    gradient = (1 - p[0]) * slope[0] * unit[0] - sum(
        p[j] * slope[j] * unit[j] for j in range(1, len(t))
    )
    return -math.log(p[0]), gradient


@pytest.mark.parametrize("name", list(two.WARPS))
@pytest.mark.parametrize("proxies", [two.PROXIES, four.PROXIES], ids=["two", "four"])
def test_loss_and_gradient_are_those_of_the_equations(name: str, proxies: torch.Tensor) -> None:
    losses, gradients = loss_field(
        warped_softmax(proxies, *two.WARPS[name]), torch.from_numpy(POINTS)
    )
    for row, point in enumerate(POINTS):
        loss, gradient = by_hand(name, point, proxies.numpy())
        assert float(losses[row]) == pytest.approx(loss, rel=1e-9)
        assert gradients[row].tolist() == pytest.approx(gradient.tolist(), rel=1e-7, abs=1e-12)


def test_the_warps_value_inside_alpha_is_the_plain_softmaxs_and_its_gradient_is_not() -> None:
    inside = torch.tensor([[3.0, 1.0], [1.0, -1.0]])
    plain = loss_field(warped_softmax(two.PROXIES, Power(1)), inside)
    warped = loss_field(warped_softmax(two.PROXIES, two.WARPS["warp (Eq. 7)"][0]), inside)
    assert torch.equal(plain.losses, warped.losses)
    assert (plain.gradients - warped.gradients).norm(dim=1).min() > 0.005


def force_at(name: str, x: float) -> float:
    points, force, _ = two.axis_force(*two.WARPS[name])
    return float(force[(points - x).abs().argmin()])


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        # Right of the own proxy both unit vectors point outward: f2' - f1'.
        ("t (Eq. 4)", 4.0, 0.0),
        ("t²", 4.0, 8.0),  # 2 t2 - 2 t1 = 2 * 4 apart
        ("√t", 6.0, 0.5 / math.sqrt(8) - 0.5 / math.sqrt(4)),
        ("warp (Eq. 7)", 4.0, 1 - two.K1),
        ("warp (Eq. 7)", 6.0, 1 - two.K2),
        # Between the proxies both pull and push point to the own one: f1' + f2'.
        ("t (Eq. 4)", 0.5, 2.0),
        ("warp (Eq. 7)", 0.5, 1 + two.K1),
    ],
    ids=lambda value: str(value),
)
def test_the_force_along_the_axis(name: str, x: float, expected: float) -> None:
    assert force_at(name, x) == pytest.approx(expected, abs=2e-4)


def test_the_warp_alone_turns_the_force_at_alpha() -> None:
    alpha = two.OWN[0] + two.ALPHA
    assert force_at("warp (Eq. 7)", alpha - 0.05) > 0 > force_at("warp (Eq. 7)", alpha + 0.05)


@pytest.mark.parametrize(
    ("own_warp", "distance"),
    [(Piecewise(two.ALPHA, two.K1, two.K2), two.ALPHA), (Power(1), 0.0)],
    ids=["warp", "plain"],
)
def test_descent_among_four_proxies_rests_at_alpha_on_the_diagonal(
    own_warp: Warp, distance: float
) -> None:
    point = four.resting_point(own_warp, steps=200) - four.PROXIES[0]
    # Steps are of a length of their own, 0.01 in the end, so a rest is as exact as that.
    assert point.tolist() == pytest.approx([distance / math.sqrt(2)] * 2, abs=0.02)


def test_what_is_drawn_is_in_the_tables() -> None:
    data = two.compute(Settings("quick"))
    table = data.tables[""]
    assert {len(column) for column in table.values()} == {len(two.WARPS) * len(two.X) * len(two.Y)}
    row = 3 * len(two.X) * len(two.Y) + 1234  # of the warp
    point = np.array([table["x"][row], table["y"][row]])
    loss, gradient = by_hand("warp (Eq. 7)", point, two.PROXIES.numpy())
    assert table["warp"][row] == "warp (Eq. 7)"
    assert table["loss"][row] == pytest.approx(loss)
    assert [table["fx"][row], table["fy"][row]] == pytest.approx((-gradient).tolist())


def test_a_grid_runs_row_by_row() -> None:
    points = grid(np.array([1.0, 2, 3]), np.array([5.0, 6]))
    assert points.tolist() == [[1, 5], [2, 5], [3, 5], [1, 6], [2, 6], [3, 6]]
