"""Recall against the share of classes that a training step compares with.

NormSoftmax, Figure 4, on Omniglot (964 classes) instead of Stanford Online Products (11,318).
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from examples.paper_figures.digits import add_rows, mean_text, rows_where
from examples.paper_figures.normalized_softmax_dimensions import draw_means
from examples.paper_figures.retrieval import Retrieval
from examples.paper_figures.style import COLOURS, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Settings

RATIOS = (0.01, 0.03, 0.1, 1.0)
QUICK_RATIOS = (0.1, 1.0)
RECALL_AT = (1, 2, 4, 10)
MARKERS, STYLES = ("o", "s", "^", "D"), ("-", "--", "-.", ":")
DIMENSION, QUICK_DIMENSION = 128, 16


def compute(settings: Settings) -> FigureData:
    """Train every ratio; return the recalls of each seed."""
    retrieval = Retrieval.of(settings)
    quick = settings.budget == "quick"
    ratios, size = (QUICK_RATIOS, QUICK_DIMENSION) if quick else (RATIOS, DIMENSION)
    table: dict[str, list[Any]] = {}
    for ratio in ratios:
        for seed in range(retrieval.budget.seeds):
            title = f"{100 * ratio:g} % of classes"
            x = retrieval.embeddings(title, size, seed, ratio)
            for k, value in retrieval.recall(x, RECALL_AT).items():
                add_rows(table, 1, ratio=ratio, k=k, seed=seed, recall=value)
    caption = (
        "Recall@K on unseen classes against the share of the training classes that the softmax of "
        "each step runs over: those of its batch, and others resampled each step up to that "
        f"share. Recall@1 less that of all classes, in points, paired by seed: "
        f"{_losses_text(table, ratios)}. {size} dimensions. At {100 * min(ratios):g} % "
        f"({_kept(min(ratios), retrieval)} classes) the classes of the batch are all there is. "
        f"{retrieval.described()}."
    )
    return FigureData({"": table}, caption)


def _losses_text(table: dict[str, list[Any]], ratios: tuple[float, ...]) -> str:
    whole = rows_where(table, ratio=1.0, k=1)["recall"]
    differences = []
    for ratio in ratios[:-1]:
        some = rows_where(table, ratio=ratio, k=1)["recall"]
        difference = mean_text([a - b for a, b in zip(some, whole, strict=True)])
        differences.append(f"{100 * ratio:g} %: {difference}")
    return "; ".join(differences)


def _kept(ratio: float, retrieval: Retrieval) -> int:
    """Classes of a step: those of the batch, or the share if that is more."""
    in_batch = retrieval.budget.batch_size // retrieval.budget.each
    return max(in_batch, -int(-ratio * retrieval.train.num_classes // 1))


def draw(data: FigureData) -> Figure:
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    dress(axes)
    axes.set_xscale("log")
    for index, k in reversed(list(enumerate(RECALL_AT))):
        rows = rows_where(data.tables[""], k=k)
        marker, style = MARKERS[index], STYLES[index]
        draw_means(axes, rows, "ratio", "recall", COLOURS[index], marker, style, f"Recall@{k}")
    ratios = sorted(set(data.tables[""]["ratio"]))
    axes.set_xticks(ratios, labels=[f"{100 * ratio:g}" for ratio in ratios])
    axes.minorticks_off()
    axes.set_xlabel("classes compared with in a step (% of all)", fontsize=9.5, color=INK)
    axes.set_ylabel("Recall@K (%)", fontsize=9.5, color=INK)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    return figure
