"""Mean distance of embeddings to their proxies over training, for many functions of the distance.

Realigned Softmax Warping, Figure 9 (AvgDTP, Eq. 9) for the functions of its Table III, on Omniglot
instead of CUB and from scratch instead of a pretrained network. Width and initialisation are such
that the distance starts near the paper's 13.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from examples.paper_figures.digits import add_rows, rows_where
from examples.paper_figures.images import Images, many_classes
from examples.paper_figures.networks import NormalizedConv4
from examples.paper_figures.style import COLOURS, INK, FigureData, dress, new_figure
from examples.paper_figures.training import Budget, Phase, Settings, Trained, Training, embed, train
from pml_extensions.evaluation import average_distance_to_proxy
from pml_extensions.functional import Piecewise, Power, Scaled, Warp
from pml_extensions.losses import WarpedSoftmaxLoss


class Kind(NamedTuple):
    """A row of Table III: its warps of the own and of the other distances."""

    name: str
    own: Warp
    other: Warp
    panel: int


def _warp(k1: float, k2: float, alpha: float) -> Kind:
    return Kind(f"k1 {k1:g}, k2 {k2:g}, α {alpha:g}", Piecewise(alpha, k1, k2), Power(1), 2)


KINDS = (
    Kind("t₁ − t₂ (Eq. 4)", Power(1), Power(1), 0),
    Kind("t₁² − t₂²", Power(2), Power(2), 0),
    Kind("√t₁ − √t₂", Power(0.5), Power(0.5), 0),
    Kind("t₁^1.5 − t₂^1.5", Power(1.5), Power(1.5), 0),
    Kind("0.5 t₁ − t₂", Scaled(0.5), Power(1), 1),
    Kind("0.97 t₁ − t₂", Scaled(0.97), Power(1), 1),
    Kind("1.1 t₁ − t₂", Scaled(1.1), Power(1), 1),
    Kind("2 t₁ − t₂", Scaled(2), Power(1), 1),
    _warp(0.25, 2.25, 7.75),
    _warp(0.9, 1.1, 25),
    _warp(0.5, 1.5, 50),
)
PANELS = ("powers", "half-warps", "warps")
STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class _Budget:
    classes: int
    embedding_size: int
    width: int
    epochs: int
    seeds: int
    batch_size: int
    each: int


BUDGETS: dict[Budget, _Budget] = {
    "quick": _Budget(12, 32, 4, 2, 1, 12, 3),
    "default": _Budget(50, 512, 16, 16, 3, 64, 8),
    "full": _Budget(964, 512, 64, 50, 5, 64, 8),
}
LR, PROXY_LR = 1e-3, 1e-2


def compute(settings: Settings) -> FigureData:
    """Train with every function; return the distances after each epoch."""
    budget = BUDGETS[settings.budget]
    whole, _ = many_classes(settings.budget == "quick")
    images = whole.first(int((whole.labels < budget.classes).sum()))
    table: dict[str, list[Any]] = {}
    for kind in KINDS:
        for seed in range(budget.seeds):
            run = _trained(kind, budget, images, seed, settings)
            count = len(run.history)
            end = run.diverged
            add_rows(
                table, count, kind=kind.name, seed=seed, epoch=list(range(count)),
                distance=[x if math.isfinite(x) else None for x in run.history],
                diverged=[None if end is None else end] * count,
            )  # fmt: skip
    seeds = "one seed" if budget.seeds == 1 else f"{budget.seeds} seeds"
    caption = (
        "AvgDTP (Eq. 9), the mean distance of training embeddings to their proxies, in evaluation "
        "mode, over training: every seed a line. Functions f1 - f2 as in Table III; warps with k1, "
        f"k2 and alpha (dotted). {images.name}, {images.num_classes} classes, {len(images):,} "
        f"images, no augmentation; four convolutions of width {budget.width} from scratch, "
        f"LayerNorm, linear layer to {budget.embedding_size} dimensions with torch's "
        f"initialisation; proxies normal with variance 2/C; scale 1; Adam, learning rate {LR:g} "
        f"({PROXY_LR:g} for proxies), {budget.epochs} epochs of batches of {budget.batch_size} "
        f"({budget.each} a class), {seeds}. {_diverged_text(table)}"
    )
    return FigureData({"": table}, caption)


def _trained(kind: Kind, budget: _Budget, images: Images, seed: int, settings: Settings) -> Trained:
    training = Training(
        f"{kind.name}, seed {seed}",
        NormalizedConv4,
        WarpedSoftmaxLoss,
        budget.embedding_size,
        (Phase(budget.epochs, LR, PROXY_LR),),
        {"width": budget.width},
        {"own_warp": kind.own, "other_warp": kind.other},
        seed,
        budget.batch_size,
        budget.each,
    )

    def distance(network: nn.Module, loss: nn.Module) -> float:
        embeddings = embed(network, images)
        proxies = loss.proxies.detach().cpu()  # type: ignore[operator]
        if not (embeddings.isfinite().all() and proxies.isfinite().all()):
            return math.nan
        return average_distance_to_proxy(embeddings, images.labels, proxies)

    return train(training, images, settings, measure=distance)


def _diverged_text(table: dict[str, list[Any]]) -> str:
    ends = {
        kind.name: sorted({e for e in rows_where(table, kind=kind.name)["diverged"] if e})
        for kind in KINDS
    }
    infinite = [f"{name} (epoch {', '.join(map(str, e))})" for name, e in ends.items() if e]
    return (
        f"Became infinite: {'; '.join(infinite)}." if infinite else "No training became infinite."
    )


def draw(data: FigureData) -> Figure:
    figure = new_figure(9.6, 3.9)
    all_axes = figure.subplots(1, 3, sharey=True)
    for panel, axes in enumerate(all_axes):
        _draw_panel(axes, [kind for kind in KINDS if kind.panel == panel], data)
        axes.set_title(f"({'abc'[panel]}) {PANELS[panel]}", fontsize=9.5, loc="left", color=INK)
        axes.set_xlabel("epoch", fontsize=9.5, color=INK)
    all_axes[0].set_ylabel("mean distance to the own proxy", fontsize=9.5, color=INK)
    ticks = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    all_axes[0].set_yticks(ticks, labels=[str(tick) for tick in ticks])
    all_axes[0].minorticks_off()
    distances = [x for x in data.tables[""]["distance"] if x]
    all_axes[0].set_ylim(0.8 * min(distances), 4 * max(distances))  # with room for the legends
    return figure


def _draw_panel(axes: Axes, kinds: list[Kind], data: FigureData) -> None:
    dress(axes)
    axes.set_yscale("log")
    for index, kind in enumerate(kinds):
        colour, style = COLOURS[index], STYLES[index]
        rows = rows_where(data.tables[""], kind=kind.name)
        for seed in sorted(set(rows["seed"])):
            training = rows_where(rows, seed=seed)
            values = np.array(
                [np.nan if d is None else d for d in training["distance"]], dtype=float
            )
            label = kind.name if seed == 0 else None
            axes.plot(
                training["epoch"], values, color=colour, linestyle=style, linewidth=1.3, label=label
            )
            if training["diverged"][0]:
                last = np.flatnonzero(np.isfinite(values))[-1]
                axes.plot(training["epoch"][last], values[last], "x", color=INK, markersize=6)
        if isinstance(kind.own, Piecewise):
            axes.axhline(kind.own.alpha, color=colour, linewidth=0.9, linestyle=":")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", ncols=1)
