"""Landscapes of proxy pairs, and how they combine with four proxies, with the warp and without.

Realigned Softmax Warping, Figure 5, from Eq. 4, 7 and 8 and our loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from examples.paper_figures.digits import add_rows, arrays_where
from examples.paper_figures.fields import LossField, grid, loss_field, warped_softmax
from examples.paper_figures.style import COLOURS, INK, FigureData, new_figure
from examples.paper_figures.training import Settings
from examples.paper_figures.warped_softmax_landscape import (
    ALPHA,
    K1,
    K2,
    add_field,
    circle,
    draw_landscape,
    dress_colour_bar,
    mark_proxies,
)
from pml_extensions.functional import Piecewise, Power, Warp

#: Corners of a square, the own proxy first.
PROXIES = torch.tensor([[2.0, 2], [-2, 2], [2, -2], [-2, -2]], dtype=torch.float64)
OWN_WARPS: dict[str, Warp] = {
    "warp (Eq. 7)": Piecewise(ALPHA, K1, K2),
    "t (Eq. 4)": Power(1),
}
#: The classes of each panel: the own one against each other one, then all.
PANELS = {"own and 1": (0, 1), "own and 2": (0, 2), "own and 3": (0, 3), "all four": (0, 1, 2, 3)}
X = Y = np.linspace(-5, 7, 97)


def compute(settings: Settings) -> FigureData:
    """Return the loss and the descent direction on a grid, for each set of proxies."""
    points = grid(X, Y)
    table: dict[str, list[Any]] = {}
    ends: dict[str, list[Any]] = {}
    for warp, own_warp in OWN_WARPS.items():
        for panel, classes in PANELS.items():
            field = field_of(own_warp, classes, points)
            add_field(table, points, *field, warp=warp, proxies=panel)
        x, y = resting_point(own_warp).tolist()
        add_rows(ends, 1, warp=warp, proxies="all four", x=x, y=y)
    caption = (
        "Loss of one embedding of the class of the filled proxy (colour, contours; scale 1, "
        "proxies at the corners of a square of side 4) and lines of steepest descent by autograd: "
        "against each other proxy alone, and against all three. Top: the warp with alpha = "
        f"{ALPHA:g} (circle), k1 = {K1:g}, k2 = {K2:g}, m = 1. Bottom: the plain softmax. Cross: "
        "where descent from (1, 1), with steps that shrink, comes to rest. Formulas only, in "
        "float64."
    )
    return FigureData({"": table, "rest": ends}, caption)


def field_of(own_warp: Warp, classes: tuple[int, ...], points: torch.Tensor) -> LossField:
    """Return loss and gradient of an embedding of class 0 among ``classes``."""
    return loss_field(warped_softmax(PROXIES[list(classes)], own_warp), points)


def resting_point(own_warp: Warp, steps: int = 600) -> torch.Tensor:
    """Return where descent with all four proxies ends, from (1, 1).

    Steps have the direction of the gradient and lengths that shrink, because its size tells little:
    where the class is certain all forces vanish together.
    """
    point = torch.ones(1, 2, dtype=torch.float64)
    for step in range(steps):
        _, gradient = field_of(own_warp, PANELS["all four"], point)
        point = point - gradient / gradient.norm().clamp(min=1e-300) * 2 / (10 + step)
    return point[0]


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 4.7)
    axes = figure.subplots(len(OWN_WARPS), len(PANELS), sharex=True, sharey=True)
    for row, warp in enumerate(OWN_WARPS):
        for column, (panel, classes) in enumerate(PANELS.items()):
            upper = axes[row, column]
            field = arrays_where(data.tables[""], warp=warp, proxies=panel)
            filled = draw_landscape(upper, field)
            corners = [tuple(p) for p in PROXIES.tolist()]
            mark_proxies(upper, corners[:1], [corners[c] for c in classes[1:]])
            if row == 0:
                circle(upper, corners[0], ALPHA)
                upper.set_title(f"({'abcd'[column]}) {panel}", fontsize=9.5, loc="left", color=INK)
            if column == 0:
                upper.set_ylabel(f"{warp}\ny", fontsize=9.5, color=INK)
            if row == 1:
                upper.set_xlabel("x (units of the embedding)", fontsize=9, color=INK)
    rest = data.tables["rest"]
    for row in range(len(OWN_WARPS)):
        axes[row, -1].plot(
            rest["x"][row], rest["y"][row], "X", markersize=9, color=COLOURS[1],
            markeredgecolor=INK, zorder=6,
        )  # fmt: skip
    dress_colour_bar(figure.colorbar(filled, ax=axes, shrink=0.8, pad=0.01))
    return figure
