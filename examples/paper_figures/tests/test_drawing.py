"""What the pictures show is what was computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.lines import Line2D

from examples.paper_figures import heated_up_softmax_embeddings as circles
from examples.paper_figures import normalized_softmax_class_sampling as sampling
from examples.paper_figures import normalized_softmax_dimensions as dimensions
from examples.paper_figures import stop_gradient_softmax_sphere as sphere
from examples.paper_figures import warped_softmax_distances as distances
from examples.paper_figures.images import Images
from examples.paper_figures.retrieval import (
    RETRIEVAL_BUDGETS,
    Retrieval,
    random_rotation,
)
from examples.paper_figures.style import FigureData, dress, new_figure
from examples.paper_figures.training import Settings
from pml_extensions.functional import unit_vectors
from reality_check.statistics import t_interval


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


def retrieval_of(labels: torch.Tensor) -> Retrieval:
    images = Images("x", torch.zeros(len(labels), 2, 2, dtype=torch.uint8), labels)
    return Retrieval(images, images, RETRIEVAL_BUDGETS["default"], Settings())


def test_means_and_intervals_are_drawn_over_the_dots() -> None:
    rows: dict[str, list[Any]] = {"x": [1, 1, 1, 4, 4, 4], "y": [2.0, 3.0, 4.0, 8.0, 8.0, 8.0]}
    axes = new_figure(3, 3).subplots()
    dress(axes)
    dimensions.draw_means(axes, rows, "x", "y", "#000000", "o", "-", "a")
    dots, means = axes.lines[:2]
    assert ys(dots) == rows["y"]
    assert ys(means) == [3.0, 8.0]
    half = t_interval([2.0, 3.0, 4.0]).half_width
    assert half is not None
    bars: Any = axes.collections[0]
    ends = bars.get_segments()[0]
    assert np.asarray(ends)[:, 1].tolist() == pytest.approx([3 - half, 3 + half])


def test_a_random_rotation_keeps_lengths_and_angles_and_turns_axes() -> None:
    turn = random_rotation(16, 0)
    assert torch.allclose(turn @ turn.t(), torch.eye(16), atol=1e-6)
    assert not torch.equal(turn, random_rotation(16, 1))
    assert turn.abs().max() < 0.95


def test_recalls_are_those_of_a_plain_search() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(30) % 6
    x = torch.randn(30, 9, generator=generator)
    retrieval = retrieval_of(labels)
    recalls = retrieval.recall(x, [1, 4])
    cosines = unit_vectors(x) @ unit_vectors(x).t()
    cosines.fill_diagonal_(-2)
    order = cosines.argsort(dim=1, descending=True)
    hits = labels[order] == labels[:, None]
    for k in (1, 4):
        expected = 100 * float(hits[:, :k].any(dim=1).double().mean())
        assert recalls[k] == pytest.approx(expected)
    bits = x > 0
    hamming = (bits[:, None] != bits[None]).sum(dim=2).double()
    hamming.fill_diagonal_(math.inf)
    tied = hamming == hamming.amin(dim=1, keepdim=True)
    same = labels[:, None] == labels
    expected = 100 * float(((tied & same).sum(1) / tied.sum(1)).mean())
    assert retrieval.binary_recall(x) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ratio", "kept"), [(0.01, 15), (0.03, 29), (0.1, 97), (1.0, 964)], ids=str
)
def test_classes_of_a_step(ratio: float, kept: int) -> None:
    # The larger of the batch's 15 and the share of 964, rounded up, as the loss has it.
    assert sampling._kept(ratio, retrieval_of(torch.arange(964))) == kept


def test_histograms_of_the_circle_count_every_image_once() -> None:
    turn = torch.linspace(-3.1, 3.1, 50)
    rows = {
        "x": turn.cos().tolist(),
        "y": turn.sin().tolist(),
        "label": [0] * 20 + [1] * 30,
    }
    shares = circles._histogram(rows)
    assert shares.shape == (2, circles.BINS)
    assert shares.sum(axis=1).tolist() == pytest.approx([1, 1])
    assert (shares[0] > 0).sum() == 20


def test_the_sphere_is_turned_not_bent() -> None:
    frame = sphere.rotated(np.eye(3))
    assert frame @ frame.T == pytest.approx(np.eye(3))
    assert np.linalg.det(frame) == pytest.approx(1)
    elevation, azimuth = np.deg2rad(sphere.VIEW)
    eye = [
        math.cos(elevation) * math.cos(azimuth),
        math.cos(elevation) * math.sin(azimuth),
        math.sin(elevation),
    ]
    assert sphere.rotated(np.array([eye]))[0] == pytest.approx([0, 0, 1])
    assert sphere.rotated(np.array([[0.0, 0, 1]]))[0, 1] > 0  # up stays up


def test_a_training_that_became_infinite_ends_in_a_cross() -> None:
    table: dict[str, list[object]] = {
        name: [] for name in ("kind", "seed", "epoch", "distance", "diverged")
    }
    for kind in distances.KINDS:
        for epoch, distance in enumerate((13.4, 20.0, None)):
            lost = kind.name.startswith("0.5")
            value = distance if distance or lost else 30.0
            row = (kind.name, 0, epoch, value, 2 if lost else None)
            for name, entry in zip(table, row, strict=True):
                table[name].append(entry)
    axes = distances.draw(FigureData({"": table}, "")).axes
    crosses = [line for panel in axes for line in panel.lines if line.get_marker() == "x"]
    assert [ys(line) for line in crosses] == [[20.0]]
    assert crosses[0] in axes[1].lines
    assert "0.5 t₁ − t₂ (epoch 2)" in distances._diverged_text(table)
