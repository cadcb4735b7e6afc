"""Embeddings of a plain softmax, raw and at unit length, and its gradient against their length.

Heated-Up Softmax Embedding, Figure 4: nothing is normalised in training, alpha is 1, with a bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from examples.paper_figures.digits import (
    Digits,
    accuracy,
    add_rows,
    angular_spread,
    draw_points,
    rows_where,
)
from examples.paper_figures.gradients import hard_and_easy, linear_gradients
from examples.paper_figures.heated_up_softmax_gradients import GROUPS, draw_gradients
from examples.paper_figures.style import FAINT, INK, FigureData, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.functional import unit_vectors

NORMS = torch.logspace(-2, 3, 151, dtype=torch.float64)
DRAWN = 1500


class LinearSoftmax(nn.Module):
    """The ordinary classifier: cross-entropy of a linear layer with bias.

    Args:
        num_classes: C.
        embedding_size: D.
    """

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(embedding_size, num_classes)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of embeddings, shape (N, D)."""
        return F.cross_entropy(self.layer(embeddings), labels)


def compute(settings: Settings) -> FigureData:
    """Train one classifier; return its embeddings and gradient lengths."""
    digits = Digits.of(settings, fashion=False)
    run = digits.trained("plain softmax", LinearSoftmax, {}, 2, seed=0)
    embeddings, labels = run.embed(digits.test), digits.test.labels
    normalized = unit_vectors(embeddings)
    points: dict[str, list[Any]] = {}
    x, y = embeddings[:DRAWN].t()
    direction_x, direction_y = normalized[:DRAWN].t()
    add_rows(
        points,
        len(x),
        label=labels[:DRAWN],
        x=x,
        y=y,
        direction_x=direction_x,
        direction_y=direction_y,
    )
    layer: Any = run.loss.layer
    weights, bias = (p.detach().cpu().double() for p in (layer.weight, layer.bias))
    logits = embeddings.double() @ weights.t() + bias
    curves: dict[str, list[Any]] = {}
    for group, rows in zip(GROUPS, hard_and_easy(logits, labels), strict=True):
        for rank, row in enumerate(rows):
            lengths = linear_gradients(
                normalized[row : row + 1].double(), weights, bias, labels[row : row + 1], NORMS
            )
            at = float(embeddings[row].norm())
            add_rows(
                curves, len(NORMS), group=group, rank=rank, own_norm=at, norm=NORMS,
                gradient=lengths[:, 0],
            )  # fmt: skip
    norms = embeddings.norm(dim=1)
    caption = (
        "A classifier trained without any normalisation (alpha = 1, with bias). (a) Embeddings of "
        "test images. (b) The same at unit length, moved outward by up to 0.5 at random so that "
        f"they do not hide each other: mean angle to the own class's mean direction "
        f"{angular_spread(normalized, labels):.1f}°, accuracy {accuracy(logits, labels):.1f} %. "
        f"Lengths of embeddings: 5 % below {norms.quantile(0.05):.0f}, median "
        f"{norms.median():.0f}, 5 % above {norms.quantile(0.95):.0f}. (c, d) Length of the "
        "gradient with respect to the embedding when a test image's embedding keeps its direction "
        "and gets another length; the dot is its own length. Images that the network gets wrong "
        "(hard) and right (easy), at the "
        f"10, 50 and 90 % quantiles of their margin. {digits.described(seeds=1)}."
    )
    return FigureData({"": points, "gradients": curves}, caption)


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 6.4)
    axes = figure.subplots(2, 2, height_ratios=(1.35, 1))
    points = {name: np.array(values) for name, values in data.tables[""].items()}
    draw_points(axes[0, 0], points["x"], points["y"], points["label"])
    axes[0, 0].set_title("(a) embeddings", fontsize=9.5, loc="left", color=INK)
    outward = 1 + 0.5 * np.random.default_rng(0).random(len(points["x"]))
    draw_points(
        axes[0, 1],
        outward * points["direction_x"],
        outward * points["direction_y"],
        points["label"],
    )
    turn = np.linspace(0, 2 * np.pi, 200)
    axes[0, 1].plot(np.cos(turn), np.sin(turn), color=FAINT, linewidth=0.8)
    axes[0, 1].set_title("(b) at unit length", fontsize=9.5, loc="left", color=INK)
    for index, group in enumerate(GROUPS):
        lower = axes[1, index]
        rows = rows_where(data.tables["gradients"], group=group)
        images = [rows_where(rows, rank=rank) for rank in sorted(set(rows["rank"]))]
        curves = [
            (image["norm"], image["gradient"], None, f"{image['own_norm'][0]:.0f}")
            for image in images
        ]
        draw_gradients(lower, curves, "own length", "lower left")
        for image in images:
            nearest = int(np.argmin(np.abs(np.log(np.array(image["norm"]) / image["own_norm"][0]))))
            lower.plot(
                image["own_norm"][0], image["gradient"][nearest], "o", color=INK, markersize=4.5
            )
        lower.set_ylim(1e-6, 30)
        lower.set_title(f"({'cd'[index]}) {group} samples", fontsize=9.5, loc="left", color=INK)
        lower.set_xlabel("|embedding|", fontsize=9.5, color=INK)
    axes[1, 0].set_ylabel("|gradient| (nats per unit)", fontsize=9.5, color=INK)
    return figure
