"""What the figures of ten-class embeddings share: budgets, spreads, and drawing by class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from torch import Tensor

from examples.paper_figures.images import Images, ten_classes
from examples.paper_figures.networks import LeNet
from examples.paper_figures.style import INK, dress
from examples.paper_figures.training import Budget, Phase, Settings, Trained, Training, train
from pml_extensions.functional import unit_vectors
from reality_check.statistics import t_interval

#: Ten colours whose lightness alternates; digits are written beside them.
DIGIT_COLOURS = (
    "#0072b2", "#e69f00", "#00513a", "#cc79a7", "#8c3b00",
    "#56b4e9", "#5b2a86", "#8fb339", "#4d4d4d", "#ff8f70",
)  # fmt: skip


@dataclass(frozen=True)
class DigitBudget:
    """How much is trained for a picture of ten classes.

    Args:
        images: that train.
        test_images: that are drawn and measured.
        epochs: of each training.
        hot_epochs: those of them in a second phase, where a loss has one.
        seeds: trainings of each kind; the first is drawn.
        widths: of :class:`LeNet`.
        shrink: pixels of which the network sees the mean, in both directions.
        batch_size: images of a batch.
        lr: of Adam.
        weight_rate: share of it for class weights of unit length. In few steps those of two classes
            that start together would otherwise run after the same embeddings.
    """

    images: int
    test_images: int
    epochs: int
    hot_epochs: int
    seeds: int
    widths: tuple[int, int, int]
    shrink: int = 1
    batch_size: int = 128
    lr: float = 1e-3
    weight_rate: float = 1.0


#: ``full`` is the MNIST script of the Heated-Up Softmax paper: 100 epochs, the last 20 hot.
DIGIT_BUDGETS: dict[Budget, DigitBudget] = {
    "quick": DigitBudget(200, 100, 2, 1, 1, (4, 4, 8), 2, 20, 3e-3),
    "default": DigitBudget(10_000, 2_000, 10, 3, 3, (8, 16, 64), 2, 64, 3e-3, 0.1),
    "full": DigitBudget(50_000, 10_000, 100, 20, 3, (32, 64, 500)),
}


@dataclass(frozen=True)
class Digits:
    """Images, budget and settings of one figure.

    Args:
        train: images that train.
        test: images that are drawn.
        budget: how much is trained.
        settings: of the figure.
    """

    train: Images
    test: Images
    budget: DigitBudget
    settings: Settings

    @classmethod
    def of(cls, settings: Settings, fashion: bool) -> Digits:
        """Read the images that the settings ask for."""
        budget = DIGIT_BUDGETS[settings.budget]
        train_images, test_images = ten_classes(settings.budget == "quick", fashion)
        return cls(
            train_images.first(budget.images),
            test_images.first(budget.test_images),
            budget,
            settings,
        )

    def trained(
        self,
        title: str,
        loss: Callable[..., Any],
        arguments: Mapping[str, Any],
        embedding_size: int,
        seed: int,
        loss_lr: float | None = None,
        hot: Mapping[str, float] | None = None,
    ) -> Trained:
        """Train a LeNet with a loss.

        Args:
            title: for lines of progress.
            loss: class of the loss.
            arguments: of the loss.
            embedding_size: D.
            seed: of weights and batches.
            loss_lr: learning rate of the loss's parameters, where it differs.
            hot: values of a second phase with a tenth of the learning rate; None: one phase.
        """
        budget = self.budget
        cold = budget.epochs - (budget.hot_epochs if hot else 0)
        phases = [Phase(cold, budget.lr, loss_lr)]
        if hot:
            own = None if loss_lr is None else loss_lr / 10
            phases.append(Phase(budget.hot_epochs, budget.lr / 10, own, hot))
        training = Training(
            f"{title}, seed {seed}",
            LeNet,
            loss,
            embedding_size,
            tuple(phases),
            {"widths": budget.widths, "shrink": budget.shrink},
            arguments,
            seed,
            budget.batch_size,
        )
        return train(training, self.train, self.settings)

    def described(self, seeds: int | None = None) -> str:
        """Say what was trained and drawn, for captions.

        Args:
            seeds: how many were trained; None: as many as the budget has.
        """
        budget = self.budget
        trained = seeds or budget.seeds
        return (
            f"{self.train.name}, {len(self.train):,} training and {len(self.test):,} test images; "
            f"LeNet with widths {', '.join(map(str, budget.widths))} at {28 // budget.shrink} x "
            f"{28 // budget.shrink} pixels; Adam, learning rate "
            f"{budget.lr:g}, {budget.epochs} epochs of batches of {budget.batch_size}; "
            + ("one seed" if trained == 1 else f"{trained} seeds, the first one drawn")
        )


def class_directions(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return the direction of the mean unit embedding of each class, shape (C, D)."""
    normalized = unit_vectors(embeddings.double())
    sums = normalized.new_zeros(int(labels.max()) + 1, normalized.shape[1]).index_add_(
        0, labels, normalized
    )
    return unit_vectors(sums)


def angular_spread(embeddings: Tensor, labels: Tensor) -> float:
    """Return the mean angle of embeddings to the mean direction of their class, in degrees.

    Averaged over samples; 0 where every class is one direction.
    """
    normalized = unit_vectors(embeddings.double())
    cosines = (normalized * class_directions(embeddings, labels)[labels]).sum(dim=1)
    return float(torch.rad2deg(cosines.clamp(-1, 1).acos()).mean())


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the share of samples whose largest logit is that of their class, in percent."""
    return float((logits.cpu().argmax(dim=1) == labels).double().mean()) * 100


def mean_text(values: list[float], unit: str = "", digits: int = 1) -> str:
    """Return ``mean ± half-width`` of the 95 % t-interval, or the mean alone of one value."""
    interval = t_interval(values)
    half = "" if interval.half_width is None else f" ± {interval.half_width:.{digits}f}"
    return f"{round(interval.mean, digits) + 0.0:.{digits}f}{half}{unit}"  # no -0.0


def add_rows(table: dict[str, list[Any]], count: int, **columns: Any) -> None:
    """Append ``count`` rows to a table; a single value stands for all of them."""
    for name, value in columns.items():
        if isinstance(value, Tensor):
            value = value.tolist()
        table.setdefault(name, []).extend(value if isinstance(value, list) else [value] * count)


def rows_where(table: Mapping[str, Sequence[Any]], **wanted: Any) -> dict[str, list[Any]]:
    """Return the rows of a table whose columns have the wanted values."""
    keep = [
        all(table[name][row] == value for name, value in wanted.items())
        for row in range(len(next(iter(table.values()))))
    ]
    return {name: list(itertools.compress(values, keep)) for name, values in table.items()}


def arrays_where(table: Mapping[str, Sequence[Any]], **wanted: Any) -> dict[str, np.ndarray]:
    """Return :func:`rows_where` as arrays."""
    return {name: np.array(values) for name, values in rows_where(table, **wanted).items()}


def colour_of(label: int) -> str:
    return DIGIT_COLOURS[label % len(DIGIT_COLOURS)]


def draw_points(axes: Axes, x: np.ndarray, y: np.ndarray, labels: np.ndarray) -> None:
    """Draw embeddings in the plane, each class with its digit at its median."""
    dress(axes)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("dimension 1", fontsize=9, color=INK)
    axes.set_ylabel("dimension 2", fontsize=9, color=INK)
    axes.scatter(x, y, s=3, c=[*map(colour_of, labels)], linewidths=0, rasterized=True)
    for label in np.unique(labels):
        rows = labels == label
        write_digit(axes, int(label), float(np.median(x[rows])), float(np.median(y[rows])))


def write_digit(axes: Axes, digit: int, x: float, y: float) -> None:
    """Write a class beside its points, readable on any ground."""
    axes.text(
        x, y, str(digit), fontsize=9, color=INK, ha="center", va="center", zorder=7,
        path_effects=[withStroke(linewidth=2.2, foreground="white")],
    )  # fmt: skip
