"""Recall against the dimension of the embedding, for real values and for their signs.

NormSoftmax, Figure 2, on Omniglot instead of Cars and CUB. A third curve, which the paper does not
have, takes the signs after a random rotation: signs of many random directions keep angles whatever
the network has learnt, so only what the network's own axes have beyond these is learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.paper_figures.digits import add_rows, mean_text, rows_where
from examples.paper_figures.retrieval import Retrieval, random_rotation
from examples.paper_figures.style import COLOURS, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Settings
from reality_check.statistics import t_interval

DIMENSIONS = (4, 8, 16, 32, 128)
QUICK_DIMENSIONS = (4, 16)
KINDS = {
    "real values": ("o", "-"),
    "signs (binary)": ("s", "--"),
    "signs after a random rotation": ("^", ":"),
}


def compute(settings: Settings) -> FigureData:
    """Train every dimension; return the recalls of each seed."""
    retrieval = Retrieval.of(settings)
    sizes = QUICK_DIMENSIONS if settings.budget == "quick" else DIMENSIONS
    table: dict[str, list[Any]] = {}
    for size in sizes:
        for seed in range(retrieval.budget.seeds):
            x = retrieval.embeddings(f"{size} dimensions", size, seed)
            recalls = (
                retrieval.recall(x, [1])[1],
                retrieval.binary_recall(x),
                retrieval.binary_recall(x @ random_rotation(size, seed)),
            )
            for kind, value in zip(KINDS, recalls, strict=True):
                add_rows(table, 1, kind=kind, dimension=size, seed=seed, recall_at_1=value)
    real, signs, turned = (
        rows_where(table, kind=kind, dimension=sizes[-1])["recall_at_1"] for kind in KINDS
    )
    loss = mean_text([a - b for a, b in zip(real, signs, strict=True)])
    gain = mean_text([a - b for a, b in zip(signs, turned, strict=True)])
    caption = (
        "Recall@1 on unseen classes against the dimension of the embedding: real values by cosine, "
        "and one bit a dimension (value above 0) by Hamming distance, averaged over ties; and the "
        f"bits after a random rotation. With {sizes[-1]} dimensions bits lose {loss} points "
        f"against real values and gain {gain} over rotated ones (paired by seed). "
        f"{retrieval.described()}."
    )
    return FigureData({"": table}, caption)


def draw(data: FigureData) -> Figure:
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    dress(axes)
    axes.set_xscale("log", base=2)
    for index, (kind, (marker, style)) in enumerate(KINDS.items()):
        rows = rows_where(data.tables[""], kind=kind)
        draw_means(axes, rows, "dimension", "recall_at_1", COLOURS[index], marker, style, kind)
    sizes = sorted(set(data.tables[""]["dimension"]))
    axes.set_xticks(sizes, labels=[str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("dimension of the embedding", fontsize=9.5, color=INK)
    axes.set_ylabel("Recall@1 (%)", fontsize=9.5, color=INK)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure


def draw_means(
    axes: Axes,
    rows: dict[str, list[Any]],
    x: str,
    y: str,
    colour: str,
    marker: str,
    style: str,
    label: str,
) -> None:
    """Draw every value as a dot, and the means with their intervals along a line."""
    values = sorted(set(rows[x]))
    samples = [rows_where(rows, **{x: value})[y] for value in values]
    intervals = [t_interval(sample) for sample in samples]
    axes.plot(rows[x], rows[y], marker, markersize=3, color=colour, alpha=0.55, markeredgewidth=0)
    axes.errorbar(
        values, [i.mean for i in intervals], yerr=[i.half_width or np.nan for i in intervals],
        color=colour, linestyle=style, linewidth=1.6, marker=marker, markersize=5.5, capsize=3,
        label=label,
    )  # fmt: skip
