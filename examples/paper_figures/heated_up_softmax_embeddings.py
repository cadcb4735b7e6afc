"""Two-dimensional embeddings of digits under a softmax of different temperatures.

Heated-Up Softmax Embedding, Figure 3 (alpha 0.25, 4, 16 and 64) and, from its code, alpha 32 and
the heated-up 16 to 4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from examples.paper_figures.digits import (
    Digits,
    accuracy,
    add_rows,
    angular_spread,
    colour_of,
    mean_text,
    rows_where,
    write_digit,
)
from examples.paper_figures.style import FAINT, INK, FigureData, new_figure
from examples.paper_figures.training import Settings, Trained
from pml_extensions.functional import unit_vectors
from pml_extensions.losses import HeatedUpSoftmaxLoss


class Kind(NamedTuple):
    """A temperature: ``hot`` is that of the second phase, None without one."""

    name: str
    alpha: float
    hot: float | None = None


KINDS = (
    Kind("α = 0.25", 0.25),
    Kind("α = 4", 4),
    Kind("α = 16", 16),
    Kind("α = 32", 32),
    Kind("α = 64", 64),
    Kind("α = 16, heated to 4", 16, 4),
)
#: Bins of the angle, and the height of the fullest one above the circle of radius 1.
BINS, HEIGHT = 180, 0.55


def trained(digits: Digits, kind: Kind, seed: int) -> Trained:
    """Train with one temperature; also the networks of the figures on gradients."""
    hot = None if kind.hot is None else {"alpha": kind.hot}
    arguments = {"alpha": kind.alpha}
    loss_lr = digits.budget.lr * digits.budget.weight_rate
    return digits.trained(kind.name, HeatedUpSoftmaxLoss, arguments, 2, seed, loss_lr, hot)


def compute(settings: Settings) -> FigureData:
    """Train all kinds; return unit embeddings, class weights and spreads."""
    digits = Digits.of(settings, fashion=False)
    points: dict[str, list[Any]] = {}
    weights: dict[str, list[Any]] = {}
    spreads: dict[str, list[Any]] = {}
    for kind in KINDS:
        for seed in range(digits.budget.seeds):
            run = trained(digits, kind, seed)
            normalized = unit_vectors(run.embed(digits.test))
            with torch.no_grad():
                correct = accuracy(run.loss.get_logits(normalized), digits.test.labels)  # type: ignore[operator]
            spread = angular_spread(normalized, digits.test.labels)
            add_rows(spreads, 1, kind=kind.name, seed=seed, spread=spread, accuracy=correct)
            if seed == 0:
                x, y = normalized.t()
                labels = digits.test.labels
                add_rows(points, len(normalized), kind=kind.name, label=labels, x=x, y=y)
                w = unit_vectors(run.loss.proxies.detach().cpu())  # type: ignore[operator]
                add_rows(
                    weights, len(w), kind=kind.name, label=list(range(len(w))), x=w[:, 0], y=w[:, 1]
                )
    caption = (
        "Unit-length embeddings of test images in two dimensions, as histograms of their angle "
        "outside the circle (a colour for each class, its digit at the mean direction; heights "
        "grow with the square root of the share), and the class weights inside (diamonds). Above "
        "each: mean angle to the own class's mean direction and accuracy on test images, mean and "
        "95 % interval over seeds. "
        f"{digits.described()}; class weights learn at {digits.budget.weight_rate:g} of the rate; "
        f"heated: the last {digits.budget.hot_epochs} epochs with a tenth "
        "of the learning rate."
    )
    return FigureData({"": points, "weights": weights, "spread": spreads}, caption)


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.0, 6.4)
    fullest = max(_histogram(rows_where(data.tables[""], kind=k.name)).max() for k in KINDS)
    for axes, kind in zip(figure.subplots(2, 3).flat, KINDS, strict=True):
        _draw_circle(
            axes,
            rows_where(data.tables[""], kind=kind.name),
            rows_where(data.tables["weights"], kind=kind.name),
            fullest,
        )
        rows = rows_where(data.tables["spread"], kind=kind.name)
        spread, correct = mean_text(rows["spread"], "°"), mean_text(rows["accuracy"], " %")
        axes.set_title(f"{kind.name}\n{spread}, {correct}", fontsize=9.5, color=INK)
    return figure


def _histogram(rows: dict[str, list[Any]]) -> np.ndarray:
    """Share of each class's images in each bin of the angle, shape (C, BINS)."""
    angles, labels = np.arctan2(rows["y"], rows["x"]), np.array(rows["label"])
    edges = np.linspace(-np.pi, np.pi, BINS + 1)
    counts = [np.histogram(angles[labels == c], edges)[0] for c in range(labels.max() + 1)]
    return np.stack([count / max(count.sum(), 1) for count in counts])


def _draw_circle(
    axes: Axes, points: dict[str, list[Any]], weights: dict[str, list[Any]], fullest: float
) -> None:
    axes.set_aspect("equal")
    axes.axis("off")
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color=FAINT, linewidth=0.8, zorder=1)
    edges = np.linspace(-np.pi, np.pi, BINS + 1)
    coordinates = np.stack([np.array(points["x"]), np.array(points["y"])], axis=1)
    for label, shares in enumerate(_histogram(points)):
        colour = colour_of(label)
        # Heights by the square root, or classes that spread out would vanish beside narrow ones.
        outer = 1 + HEIGHT * np.sqrt(shares / fullest)
        bars = []
        for low, high, radius in zip(edges[:-1], edges[1:], outer, strict=True):
            if radius > 1:
                arc = np.linspace(low, high, 3)
                ring = np.concatenate([np.ones(3), np.full(3, radius)])
                both = np.concatenate([arc, arc[::-1]])
                bars.append(np.stack([ring * np.cos(both), ring * np.sin(both)], axis=1))
        axes.add_collection(PolyCollection(bars, color=colour, alpha=0.75, zorder=2))
        mean = coordinates[np.array(points["label"]) == label].mean(axis=0)
        if np.linalg.norm(mean) > 0:
            write_digit(axes, label, *(1.68 * mean / np.linalg.norm(mean)))
    for x, y, label in zip(weights["x"], weights["y"], weights["label"], strict=True):
        axes.plot(
            0.9 * x, 0.9 * y, "D", markersize=5, color=colour_of(label),
            markeredgecolor=INK, markeredgewidth=0.6, zorder=3,
        )  # fmt: skip
    axes.set_xlim(-1.8, 1.8)
    axes.set_ylim(-1.8, 1.8)
