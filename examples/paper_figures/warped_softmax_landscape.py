"""Loss of one embedding near two proxies, under four warps of the distance.

Realigned Softmax Warping, Figure 3, from Eq. 4 to 8 and our loss. The lower row, which the paper
does not have, shows the force along the line through both proxies, where the warp acts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from examples.paper_figures.digits import add_rows, arrays_where
from examples.paper_figures.fields import grid, loss_field, warped_softmax
from examples.paper_figures.style import COLOURS, FAINT, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.functional import Piecewise, Power, Warp

#: The own proxy and the other one; outward is to the right.
OWN, OTHER = (2.0, 0.0), (-2.0, 0.0)
PROXIES = torch.tensor([OWN, OTHER], dtype=torch.float64)
#: The paper's values for its panel (d).
ALPHA, K1, K2 = 3.0, 0.65, 1.5
WARPS: dict[str, tuple[Warp, Warp]] = {
    "t (Eq. 4)": (Power(1), Power(1)),
    "t²": (Power(2), Power(2)),
    "√t": (Power(0.5), Power(0.5)),
    "warp (Eq. 7)": (Piecewise(ALPHA, K1, K2), Power(1)),
}
X, Y = np.linspace(-5, 9, 113), np.linspace(-5, 5, 81)
#: Dark where the loss is low; light enough for lines on it.
COLOUR_MAP = LinearSegmentedColormap.from_list("loss", ["#5b8fc7", "#c9dcf0", "#ffffff"])
LEVELS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def compute(settings: Settings) -> FigureData:
    """Return the loss and the descent direction on a grid, and the force along the axis."""
    points = grid(X, Y)
    table: dict[str, list[Any]] = {}
    line: dict[str, list[Any]] = {}
    for name, (own_warp, other_warp) in WARPS.items():
        losses, gradients = loss_field(warped_softmax(PROXIES, own_warp, other_warp), points)
        add_field(table, points, losses, gradients, warp=name)
        x, force, losses = axis_force(own_warp, other_warp)
        add_rows(line, len(x), warp=name, x=x, loss=losses, force=force)
    caption = (
        "Loss of one embedding of the class of the filled proxy (colour, contours; two classes, "
        "scale 1, proxies 4 apart) and lines of steepest descent by autograd, for "
        f"f1 = f2 = t, t², √t and for the warp with alpha = {ALPHA:g} (circle), k1 = {K1:g}, "
        f"k2 = {K2:g}, m = 1. Below: the force on the embedding along the line through both "
        "proxies, divided by 1 - P(own class); above 0 it points outward, to the right. Formulas "
        "only, in float64."
    )
    return FigureData({"": table, "axis": line}, caption)


def axis_force(own_warp: Warp, other_warp: Warp) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return places x on the line through both proxies, the force there and the loss.

    The force is minus the gradient along x, divided by 1 - P of the own class. Both forces of the
    equations carry that factor, which hides their balance where the class is nearly certain.
    """
    x = torch.from_numpy(np.linspace(-5, 9, 701)) + 1e-4  # not on a proxy, where it jumps
    points = torch.stack([x, torch.zeros_like(x)], dim=1)
    losses, gradients = loss_field(warped_softmax(PROXIES, own_warp, other_warp), points)
    return x, -gradients[:, 0] / -torch.expm1(-losses), losses


def add_field(
    table: dict[str, list[Any]],
    points: torch.Tensor,
    losses: torch.Tensor,
    gradients: torch.Tensor,
    **names: str,
) -> None:
    """Append a row for each place: the loss there, and the direction of descent."""
    x, y = points.t()
    fx, fy = -gradients.t()
    add_rows(table, len(points), **names, x=x, y=y, loss=losses, fx=fx, fy=fy)


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 4.2)
    axes = figure.subplots(2, len(WARPS), height_ratios=(1.1, 1))
    for column, name in enumerate(WARPS):
        upper, lower = axes[0, column], axes[1, column]
        filled = draw_landscape(upper, arrays_where(data.tables[""], warp=name))
        upper.set_title(f"({'abcd'[column]}) {name}", fontsize=9.5, loc="left", color=INK)
        mark_proxies(upper, [OWN], [OTHER])
        _draw_force(lower, arrays_where(data.tables["axis"], warp=name), column == 0)
        if name.startswith("warp"):
            circle(upper, OWN, ALPHA)
            lower.axvline(OWN[0] + ALPHA, color=FAINT, linewidth=0.9, linestyle="--")
    axes[0, 0].set_ylabel("y", fontsize=9.5, color=INK)
    bar = figure.colorbar(filled, ax=axes[0, :], shrink=0.9, pad=0.01)
    dress_colour_bar(bar)
    return figure


def draw_landscape(axes: Axes, panel: dict[str, np.ndarray]) -> Any:
    """Draw contours of the loss and lines of descent; return the filled contours."""
    x, y = np.unique(panel["x"]), np.unique(panel["y"])
    loss, fx, fy = (panel[key].reshape(len(y), len(x)) for key in ("loss", "fx", "fy"))
    shown = np.clip(loss, LEVELS[0], LEVELS[-1])
    norm = LogNorm(LEVELS[0], LEVELS[-1])
    filled = axes.contourf(x, y, shown, LEVELS, cmap=COLOUR_MAP, norm=norm)
    axes.contour(x, y, shown, LEVELS, colors=FAINT, linewidths=0.4)
    # Where all forces cancel, directions are rounding noise.
    moves = np.hypot(fx, fy) > 1e-6 * -np.expm1(-loss)
    axes.streamplot(
        x, y, np.where(moves, fx, np.nan), np.where(moves, fy, np.nan), color=INK, linewidth=0.55,
        density=(0.75, 0.6), arrowsize=0.6,
    )  # fmt: skip
    dress(axes)
    axes.grid(False)
    axes.set_aspect("equal")
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    return filled


def mark_proxies(
    axes: Axes, own: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    """Mark the own proxy by a filled diamond, the others by open ones."""
    for points, fill in ((own, INK), (others, "white")):
        axes.plot(
            *zip(*points, strict=True), linestyle="", marker="D", markersize=6.5, color=INK,
            markerfacecolor=fill, markeredgewidth=1.1, zorder=5,
        )  # fmt: skip


def circle(axes: Axes, centre: tuple[float, float], radius: float) -> None:
    """Draw where the distance to the own proxy is alpha."""
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(
        centre[0] + radius * np.cos(turn), centre[1] + radius * np.sin(turn), color=COLOURS[1],
        linewidth=1.4, linestyle="--", zorder=4,
    )  # fmt: skip


def dress_colour_bar(bar: Any) -> None:
    bar.set_label("loss (nats)", fontsize=9, color=INK)
    bar.ax.tick_params(labelsize=8, colors=INK, color=FAINT)
    bar.set_ticks([0.01, 0.1, 1, 10], labels=["0.01", "0.1", "1", "≥10"])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def _draw_force(axes: Axes, line: dict[str, np.ndarray], first: bool) -> None:
    dress(axes)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.plot(line["x"], line["force"], color=COLOURS[0], linewidth=1.7)
    for proxy, fill in ((OWN, INK), (OTHER, "white")):
        axes.plot(proxy[0], 0, "D", markersize=5.5, color=INK, markerfacecolor=fill)
    axes.set_xlim(X[0], X[-1])
    top = 10.0 if np.abs(line["force"]).max() > 5 and line["force"].min() > -9 else 2.6
    axes.set_ylim(-top, top)
    axes.set_xlabel("x (units of the embedding)", fontsize=9, color=INK)
    if first:
        axes.set_ylabel("force / (1 - P)", fontsize=9.5, color=INK)
