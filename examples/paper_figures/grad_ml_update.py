"""One update of four points under four losses, with the gradients of Table 1 set right.

GradML, Figure 1. The printed gradients of triplet (y1), DR-triplet (all), lifted structure (all)
and GradML (all) are not those of the losses of its section 3.1; both are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from examples.paper_figures.digits import add_rows, arrays_where
from examples.paper_figures.style import COLOURS, FAINT, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.functional import unit_vectors
from pml_extensions.losses import GradMLLoss
from reality_check.baseline_losses import dr_triplet

#: x1, x2 of one class and y1, y2 of another, as angles on the unit circle in degrees.
ANGLES = {"x1": 62.0, "x2": 128.0, "y1": 10.0, "y2": -48.0}
#: Hinges count as active, as in Table 1: their margin is large enough (3 is, on the unit circle).
MARGIN, DIRECTION, W, K = 3.0, 1.0, 1.0, 2.0
STEP = 0.12
STEPS = np.linspace(0, 1.0, 101)

Loss = Callable[[Tensor], Tensor]


def triplet(points: Tensor) -> Tensor:
    """Return |x1-x2|² - |x1-y1|² + m, hinged; ``points`` are x1, x2, y1, y2, shape (4, 2)."""
    x1, x2, y1, _ = points
    return (_squared(x1, x2) - _squared(x1, y1) + MARGIN).clamp(min=0)


def lifted_structure(points: Tensor) -> Tensor:
    """Return both hinges against D, the least of the four squared distances between the classes."""
    x1, x2, y1, y2 = points
    least = torch.stack([_squared(x, y) for x in (x1, x2) for y in (y1, y2)]).min()
    return sum(  # type: ignore[return-value]
        (_squared(a, b) - least + MARGIN).clamp(min=0) for a, b in ((x1, x2), (y1, y2))
    )


def grad_ml(points: Tensor) -> Tensor:
    """Return Eq. 11 with k = 2 and w = 1 in the plane, from our loss."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has no lower bound there
        loss = GradMLLoss(k=K, w=W, normalize_embeddings=False)
    return loss(points, torch.tensor([0, 0, 1, 1]))


LOSSES: dict[str, Loss] = {
    "triplet": triplet,
    "DR-triplet": lambda points: dr_triplet(points[0], points[1], points[2], MARGIN, DIRECTION),
    "lifted structure": lifted_structure,
    "GradML": grad_ml,
}


def four_points() -> Tensor:
    """Return x1, x2, y1, y2 on the unit circle, float64 of shape (4, 2)."""
    turn = torch.deg2rad(torch.tensor(list(ANGLES.values()), dtype=torch.float64))
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def gradients(loss: Loss, points: Tensor) -> Tensor:
    """Return the gradient of ``loss`` at each point, shape (4, 2), by autograd."""
    moving = points.clone().requires_grad_()
    return torch.autograd.grad(loss(moving), moving)[0]


def printed_gradients(name: str, points: Tensor) -> Tensor:
    """Return the gradients that Table 1 prints, shape (4, 2)."""
    x1, x2, y1, y2 = points
    zero = torch.zeros_like(x1)
    if name == "triplet":
        return torch.stack([2 * (y1 - x2), 2 * (x2 - x1), 2 * (y1 - x2), zero])
    if name == "DR-triplet":
        c = 1 / (_squared(x1, y1) * _squared(x1, x2)).sqrt()
        dk = _squared(x1, x2).sqrt() / _squared(x1, y1).sqrt() ** 3
        g = DIRECTION
        return torch.stack(
            [
                2 * (y1 - x2) - g * (c * (x1 - x2) + dk * (y1 - x1)),
                2 * (x2 - x1) - g * c * (x2 - x1),
                2 * (x1 - y1) - g * c * (x1 - y1),
                zero,
            ]
        )
    if name == "lifted structure":
        pairs = [(i, 2 + j) for i in range(2) for j in range(2)]
        i, j = min(pairs, key=lambda pair: float(_squared(points[pair[0]], points[pair[1]])))
        gradients = torch.stack([2 * (x1 - x2), 2 * (x2 - x1), 2 * (y1 - y2), 2 * (y2 - y1)])
        gradients[i] -= points[i] - points[j]
        gradients[j] -= points[j] - points[i]
        return gradients
    return 2 * W * torch.stack([y1 + y2 - x2, y1 + y2 - x1, x1 + x2 - y2, x1 + x2 - y1])


def compute(settings: Settings) -> FigureData:
    """Return points, both gradients, and the distance of x1 and x2 after steps of many sizes."""
    points = four_points()
    table: dict[str, list[Any]] = {}
    after: dict[str, list[Any]] = {}
    for name, loss in LOSSES.items():
        right, printed = gradients(loss, points), printed_gradients(name, points)
        add_rows(
            table, len(points), loss=name, point=list(ANGLES), x=points[:, 0], y=points[:, 1],
            gradient_x=right[:, 0], gradient_y=right[:, 1], printed_x=printed[:, 0],
            printed_y=printed[:, 1],
        )  # fmt: skip
        for geometry in ("plane", "circle"):
            for step in STEPS.tolist():
                ratio = distance_ratio(points, right, step, geometry == "circle")
                add_rows(after, 1, loss=name, geometry=geometry, step=step, ratio=ratio)
    caption = (
        "Four points on the unit circle (filled: x1, x2 of one class, circles; y1, y2 of another, "
        f"squares) and where one step of size {STEP:g} against the gradient takes them (open). "
        "Solid arrows: the gradients of the losses of section 3.1, by autograd. Dashed arrows: "
        f"Table 1 as printed, where it differs. Hinges active, g = {DIRECTION:g}; GradML with "
        f"k = {K:g}, w = {W:g}. Below: |x1 - x2| after one step of any size, relative to before: "
        "in the plane, and on the circle, where the step is followed by normalisation. Formulas "
        "only, in float64."
    )
    return FigureData({"": table, "steps": after}, caption)


def distance_ratio(points: Tensor, gradient: Tensor, step: float, on_circle: bool) -> float:
    """Return |x1 - x2| after one step, relative to before.

    Args:
        points: Shape (4, 2).
        gradient: Shape (4, 2).
        step: Step size.
        on_circle: Step along the circle's tangents and normalise.
    """
    if on_circle:
        gradient = gradient - (gradient * points).sum(dim=1, keepdim=True) * points
    moved = points - step * gradient
    if on_circle:
        moved = unit_vectors(moved)
    return float((_squared(*moved[:2]) / _squared(*points[:2])).sqrt())


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 5.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.35, 1))
    upper, lower = parts
    for index, (axes, name) in enumerate(
        zip(upper.subplots(1, 4, sharey=True), LOSSES, strict=True)
    ):
        _draw_update(axes, arrays_where(data.tables[""], loss=name))
        axes.set_title(f"({'abcd'[index]}) {name}", fontsize=9.5, loc="left", color=INK)
        axes.set_xlabel("x", fontsize=9, color=INK)
        if index == 0:
            axes.set_ylabel("y", fontsize=9, color=INK)
    handles = [
        Line2D([], [], color=COLOURS[0], linewidth=1.6, label="step, corrected gradient"),
        Line2D([], [], color=COLOURS[1], linewidth=1.2, linestyle="--", label="as printed"),
    ]
    upper.legend(
        handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9,
        labelcolor=INK,
    )  # fmt: skip
    for axes, geometry in zip(lower.subplots(1, 2, sharey=True), ("plane", "circle"), strict=True):
        _draw_steps(axes, data, geometry)
    return figure


def _draw_update(axes: Axes, rows: dict[str, np.ndarray]) -> None:
    dress(axes)
    axes.set_aspect("equal")
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color=FAINT, linewidth=0.8)
    for row, point in enumerate(rows["point"]):
        start = np.array([rows["x"][row], rows["y"][row]])
        right = -STEP * np.array([rows["gradient_x"][row], rows["gradient_y"][row]])
        printed = -STEP * np.array([rows["printed_x"][row], rows["printed_y"][row]])
        marker = "o" if point.startswith("x") else "s"
        if np.linalg.norm(right - printed) > 1e-9:
            _arrow(axes, start, printed, COLOURS[1], "--", 1.2)
        _arrow(axes, start, right, COLOURS[0], "-", 1.6)
        axes.plot(*start, marker, markersize=6, color=INK, zorder=5)
        axes.plot(
            *(start + right), marker, markersize=6, color=INK, markerfacecolor="white", zorder=4
        )
        axes.annotate(
            point, tuple(start * 0.72), fontsize=9.5, color=INK, ha="center", va="center", zorder=6
        )
    axes.set_xlim(-1.35, 1.65)
    axes.set_ylim(-1.45, 1.6)


def _arrow(
    axes: Axes, start: np.ndarray, step: np.ndarray, colour: str, style: str, width: float
) -> None:
    if np.linalg.norm(step) == 0:
        return
    axes.plot(
        *zip(start, start + step, strict=True), color=colour, linestyle=style, linewidth=width,
        zorder=3,
    )  # fmt: skip
    axes.annotate(
        "", tuple(start + step), tuple(start + 0.98 * step),
        arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": width, "mutation_scale": 9},
        zorder=4,
    )  # fmt: skip


def _draw_steps(axes: Axes, data: FigureData, geometry: str) -> None:
    dress(axes)
    styles = ("-", "--", "-.", ":")
    for index, name in enumerate(LOSSES):
        after = arrays_where(data.tables["steps"], loss=name, geometry=geometry)
        axes.plot(
            after["step"], after["ratio"], color=COLOURS[index], label=name,
            linestyle=styles[index], linewidth=1.8,
        )  # fmt: skip
    axes.axhline(1, color=FAINT, linewidth=0.8)
    where = "in the plane" if geometry == "plane" else "on the circle"
    axes.set_title(f"({'e' if geometry == 'plane' else 'f'}) {where}", fontsize=9.5, loc="left")
    axes.set_xlabel("step size", fontsize=9, color=INK)
    axes.set_ylim(0, 3)
    if geometry == "plane":
        axes.set_ylabel("|x1 - x2|, after / before", fontsize=9, color=INK)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)


def _squared(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum()
