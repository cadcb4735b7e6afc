from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from reality_check.data import ImageSet
from reality_check.gallery import draw_gallery, gallery_queries

Image = pytest.importorskip("PIL.Image")

GREEN, RED = (0, 158, 115), (205, 40, 30)


def test_queries_are_the_first_images_of_evenly_spaced_classes() -> None:
    labels = np.repeat(np.arange(9), [2, 3, 4, 2, 2, 2, 2, 2, 2])
    assert gallery_queries(labels, 3).tolist() == [0, 11, 19]
    assert gallery_queries(labels, 1).tolist() == [0]
    assert gallery_queries(labels, 99).tolist() == [0, 2, 5, 9, 11, 13, 15, 17, 19]
    shuffled = np.array([1, 1, 0, 2, 0])
    assert gallery_queries(shuffled, 3).tolist() == [2, 0, 3]


def colours(path: Path) -> set[tuple[int, ...]]:
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    return {tuple(int(v) for v in row) for row in np.unique(pixels, axis=0)}


@pytest.mark.parametrize("channels", [1, 3])
def test_right_neighbours_are_green_and_wrong_ones_red(
    channels: int, make_images: Callable[..., ImageSet], tmp_path: Path
) -> None:
    grey = make_images(4, 3)
    images = ImageSet(
        np.zeros((12, 16, 16, channels), np.uint8), grey.labels, grey.class_names, "black"
    )
    classes = torch.from_numpy(grey.labels)
    # Pairs of classes apart by direction: of 8 neighbours, the first 2 are right.
    right = torch.nn.functional.one_hot(classes, 4).float() + torch.rand(12, 4) / 100
    draw_gallery(tmp_path / "deep.png", images, right, True, 2)
    assert {GREEN, RED} <= colours(tmp_path / "deep.png")
    one = ImageSet(images.images[:3], grey.labels[:3], grey.class_names[:1], "one class")
    draw_gallery(tmp_path / "one.png", one, right[:3], True, 2)
    assert GREEN in colours(tmp_path / "one.png")
    assert RED not in colours(tmp_path / "one.png")


def test_the_geometry_is_the_methods_own(
    make_images: Callable[..., ImageSet], tmp_path: Path
) -> None:
    images = make_images(2, 10)
    draw = torch.Generator().manual_seed(0)
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[torch.from_numpy(images.labels)]
    # By direction all 8 are right; by distance the short vectors of both classes mix.
    lengths = torch.rand(20, 1, generator=draw) * 0.1
    lengths[0], lengths[5] = 0.0001, 100.0
    draw_gallery(tmp_path / "unit.png", images, directions * lengths, True, 1)
    draw_gallery(tmp_path / "raw.png", images, directions * lengths, False, 1)
    assert RED not in colours(tmp_path / "unit.png")
    assert RED in colours(tmp_path / "raw.png")
