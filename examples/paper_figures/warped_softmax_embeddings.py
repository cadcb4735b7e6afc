"""Two-dimensional embeddings under the plain Euclidean softmax and under the warp.

Realigned Softmax Warping, Figure 10. The paper has Fashion-MNIST, which is taken where it is there;
it prints neither the warp's values nor the optimiser.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from examples.paper_figures.digits import (
    Digits,
    add_rows,
    colour_of,
    draw_points,
    mean_text,
    rows_where,
)
from examples.paper_figures.style import INK, FigureData, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.evaluation import (
    RetrievalMetrics,
    average_distance_to_proxy,
    class_separability,
)
from pml_extensions.losses import WarpedSoftmaxLoss

#: Chosen by us among three on one seed: (10, 0.5, 1.5) and (4, 0.8, 1.5) leave the embeddings on a
#: line, or nearly so, because all are driven the same way out before the proxies have parted.
ALPHA, K1, K2 = 4.0, 0.9, 1.2
KINDS = {
    "normal (Eq. 4)": {"alpha": ALPHA, "k1": 1.0, "k2": 1.0},
    "warped (Eq. 7, 8)": {"alpha": ALPHA, "k1": K1, "k2": K2},
}
#: Proxies learn ten times faster than the network; the paper's do so a hundred times.
PROXY_RATE = 10.0


def compute(settings: Settings) -> FigureData:
    """Train both kinds; return embeddings, proxies and how far the classes stand apart."""
    digits = Digits.of(settings, fashion=True)
    labels = digits.test.labels
    points: dict[str, list[Any]] = {}
    proxies: dict[str, list[Any]] = {}
    spreads: dict[str, list[Any]] = {}
    for kind, arguments in KINDS.items():
        for seed in range(digits.budget.seeds):
            lr = PROXY_RATE * digits.budget.lr
            run = digits.trained(kind, WarpedSoftmaxLoss, arguments, 2, seed, loss_lr=lr)
            embeddings = run.embed(digits.test)
            p = run.loss.proxies.detach().cpu()  # type: ignore[operator]
            csc = class_separability(embeddings, labels)
            scores = RetrievalMetrics(normalize=False, metrics=["precision_at_1"])(
                embeddings, labels
            )
            add_rows(
                spreads, 1, kind=kind, seed=seed, separability=csc.ratio,
                within=csc.trace_within**0.5, between=csc.trace_between**0.5,
                distance=average_distance_to_proxy(embeddings, labels, p),
                precision_at_1=100 * scores["precision_at_1"],
            )  # fmt: skip
            if seed == 0:
                x, y = embeddings.t()
                add_rows(points, len(x), kind=kind, label=labels, x=x, y=y)
                add_rows(
                    proxies, len(p), kind=kind, label=list(range(len(p))), x=p[:, 0], y=p[:, 1]
                )
    plain, warped = (rows_where(spreads, kind=kind) for kind in KINDS)
    more = [w - n for n, w in zip(plain["separability"], warped["separability"], strict=True)]
    caption = (
        "Two-dimensional embeddings of test images, not normalised (dots; a digit at the median of "
        "each class), and the proxies (diamonds). Above: mean distance to the own proxy, P@1 and "
        "class separability (scatter between over scatter within classes) on test images, mean and "
        f"95 % interval over seeds; separability, warped less normal, paired by seed: "
        f"{mean_text(more)}. Warp: alpha = {ALPHA:g}, k1 = {K1:g}, k2 = {K2:g}, "
        f"m = 1, scale 1, chosen by us among three settings on one seed; proxies learn "
        f"{PROXY_RATE:g} times faster. {digits.described()}."
    )
    return FigureData({"": points, "proxies": proxies, "spread": spreads}, caption)


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 5.2)
    for index, (axes, kind) in enumerate(zip(figure.subplots(1, 2), KINDS, strict=True)):
        _draw_points(axes, *(rows_where(data.tables[name], kind=kind) for name in ("", "proxies")))
        rows = rows_where(data.tables["spread"], kind=kind)
        numbers = (
            f"distance {mean_text(rows['distance'])}, P@1 {mean_text(rows['precision_at_1'], ' %')}"
            f"\nseparability {mean_text(rows['separability'])}"
        )
        axes.set_title(f"({'ab'[index]}) {kind}\n{numbers}", fontsize=9.5, color=INK)
    return figure


def _draw_points(axes: Axes, points: dict[str, list[Any]], proxies: dict[str, list[Any]]) -> None:
    draw_points(axes, *(np.array(points[name]) for name in ("x", "y", "label")))
    for px, py, label in zip(proxies["x"], proxies["y"], proxies["label"], strict=True):
        colour = colour_of(label)
        axes.plot(px, py, "D", markersize=5.5, color=colour, markeredgecolor=INK, zorder=5)
    handle = Line2D(
        [], [], linestyle="", marker="D", color="white", markeredgecolor=INK, label="proxy"
    )
    axes.legend(handles=[handle], frameon=False, fontsize=8.5, loc="upper left", labelcolor=INK)
