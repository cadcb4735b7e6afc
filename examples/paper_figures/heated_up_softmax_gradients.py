"""Length of the gradient against alpha, for samples that are classified wrongly and rightly.

Heated-Up Softmax Embedding, Figure 2, by Eq. 3 with the embeddings and weights of a trained network
held fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from examples.paper_figures.digits import Digits, add_rows, rows_where
from examples.paper_figures.gradients import hard_and_easy, normalized_gradients
from examples.paper_figures.heated_up_softmax_embeddings import KINDS, trained
from examples.paper_figures.style import COLOURS, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.functional import unit_vectors

ALPHAS = torch.logspace(-2, 3, 151, dtype=torch.float64)
#: The network that samples come from: the paper's own alpha.
KIND = next(kind for kind in KINDS if kind.alpha == 16 and kind.hot is None)
GROUPS = ("hard", "easy")
STYLES = ("-", "--", ":")


def compute(settings: Settings) -> FigureData:
    """Return the gradient lengths of hard and easy test samples."""
    digits = Digits.of(settings, fashion=False)
    run = trained(digits, KIND, seed=0)
    normalized = unit_vectors(run.embed(digits.test)).double()
    weights = unit_vectors(run.loss.proxies.detach().cpu().double())  # type: ignore[operator]
    cosines = normalized @ weights.t()
    table: dict[str, list[Any]] = {}
    chosen = hard_and_easy(cosines, digits.test.labels)
    for group, rows in zip(GROUPS, chosen, strict=True):
        for rank, row in enumerate(rows):
            label = digits.test.labels[row : row + 1]
            full, along = normalized_gradients(normalized[row : row + 1], weights, label, ALPHAS)
            own = float(cosines[row, label])
            others = cosines[row].clone()
            others[label] = -torch.inf
            add_rows(
                table, len(ALPHAS), group=group, rank=rank, own_cosine=own,
                largest_other_cosine=float(others.max()), alpha=ALPHAS, gradient=full[:, 0],
                along_sphere=along[:, 0],
            )  # fmt: skip
    caption = (
        "Length of the gradient of the loss with respect to the unit embedding (Eq. 3, thick) and "
        "of its part along the circle, which alone reaches the network (thin), against alpha: "
        "test images that the network gets wrong (hard) and right (easy), at the 10, 50 and 90 % "
        "quantiles of their margin, which the legend gives as own cosine - largest other cosine. "
        f"Network trained with alpha = 16, then held fixed. {digits.described(seeds=1)}."
    )
    return FigureData({"": table}, caption)


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 3.5)
    for index, (axes, group) in enumerate(
        zip(figure.subplots(1, 2, sharey=True), GROUPS, strict=True)
    ):
        rows = rows_where(data.tables[""], group=group)
        curves = []
        for rank in sorted(set(rows["rank"])):
            curve = rows_where(rows, rank=rank)
            margin = curve["own_cosine"][0] - curve["largest_other_cosine"][0]
            curves.append(
                (curve["alpha"], curve["gradient"], curve["along_sphere"], f"{margin:+.2g}")
            )
        draw_gradients(axes, curves, "margin (cosines)")
        axes.set_title(f"({'ab'[index]}) {group} samples", fontsize=9.5, loc="left", color=INK)
        axes.set_xlabel("α (1 / temperature)", fontsize=9.5, color=INK)
        axes.axvline(16, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
        if index == 0:
            axes.set_ylabel("|gradient| (nats per unit)", fontsize=9.5, color=INK)
    return figure


def draw_gradients(
    axes: Axes,
    curves: list[tuple[Any, Any, Any, str]],
    heading: str,
    legend_position: str = "upper left",
) -> None:
    """Draw thick and thin curves on logarithmic axes; the thin ones may be None."""
    dress(axes)
    handles = []
    for rank, (x, thick, thin, label) in enumerate(curves):
        colour, style = COLOURS[rank], STYLES[rank]
        axes.loglog(x, np.maximum(thick, 1e-300), color=colour, linestyle=style, linewidth=2.0)
        if thin is not None:
            axes.loglog(x, np.maximum(thin, 1e-300), color=colour, linestyle=style, linewidth=0.8)
        handles.append(Line2D([], [], color=colour, linestyle=style, linewidth=2, label=label))
    axes.set_ylim(1e-4, 3e3)
    if handles:
        axes.legend(
            handles=handles, title=heading, loc=legend_position, frameon=False, fontsize=8.5,
            title_fontsize=8.5, labelcolor=INK,
        )  # fmt: skip
