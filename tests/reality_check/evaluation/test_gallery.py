from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from reality_check.data import ImageSet
from reality_check.data.images import Images
from reality_check.evaluation.gallery import draw_gallery, gallery_queries, thumbnails

Image = pytest.importorskip("PIL.Image")

GREEN, RED = (0, 158, 115), (205, 40, 30)


def labelled(labels: np.ndarray, queries: np.ndarray | None = None) -> ImageSet:
    images = np.zeros((len(labels), 4, 4, 1), np.uint8)
    names = tuple(map(str, range(labels.max() + 1)))
    return ImageSet(images, labels, names, "toy", queries=queries)


def test_queries_are_the_first_images_of_evenly_spaced_classes() -> None:
    test = labelled(np.repeat(np.arange(9), [2, 3, 4, 2, 2, 2, 2, 2, 2]))
    assert gallery_queries(test, 3).tolist() == [0, 11, 19]
    assert gallery_queries(test, 1).tolist() == [0]
    assert gallery_queries(test, 99).tolist() == [0, 2, 5, 9, 11, 13, 15, 17, 19]
    shuffled = labelled(np.array([1, 1, 0, 2, 0]))
    assert gallery_queries(shuffled, 3).tolist() == [2, 0, 3]


def test_with_a_gallery_of_its_own_queries_are_queries_and_neighbours_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.repeat(np.arange(3), 4)
    test = labelled(labels, np.tile([False, True, False, False], 3))
    assert gallery_queries(test, 2).tolist() == [1, 9]
    shown = []
    monkeypatch.setattr(
        "reality_check.evaluation.gallery.retrieval_gallery", lambda *args: shown.append(args)
    )
    monkeypatch.setattr("reality_check.evaluation.gallery.save_gallery", lambda *args: None)
    embeddings = torch.nn.functional.one_hot(torch.from_numpy(labels), 3).float()
    draw_gallery(tmp_path / "x.png", test, embeddings, True, 1)
    ((images, neighbours, shown_labels, queries),) = shown
    assert len(images) == 1 + 8
    assert shown_labels[neighbours[0]].tolist()[:3] == [0, 0, 0]
    assert shown_labels[queries].tolist() == [0]
    assert queries[0] not in neighbours


def test_thumbnails_are_squares_of_images_of_any_size() -> None:
    wide = np.zeros((200, 300, 3), np.uint8)
    wide[:, 50:250] = (255, 0, 0)  # the centre square
    tall = np.full((90, 40, 3), 7, np.uint8)
    flat = np.concatenate([wide.reshape(-1), tall.reshape(-1)])
    images = Images(flat, np.array([0, wide.size]), np.array([200, 90]), np.array([300, 40]), 3)
    shown = thumbnails(images)
    assert shown.shape == (2, 128, 128, 3)
    assert (shown[0, :, 5:-5] == (255, 0, 0)).all()
    assert (shown[1] == 7).all()


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
