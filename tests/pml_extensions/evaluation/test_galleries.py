"""Galleries: neighbours against brute force, and the pixels of what is drawn."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from pml_extensions.evaluation import galleries
from pml_extensions.evaluation.galleries import (
    nearest_neighbours,
    retrieval_gallery,
    save_gallery,
)

GREEN, RED, GREY = galleries.RIGHT, galleries.WRONG, galleries.QUERY


def vectors(n: int, size: int = 3, seed: int = 0) -> NDArray[np.int64]:
    """Small integers: many ties and some duplicates."""
    return np.random.default_rng(seed).integers(-2, 3, (n, size))


def brute_force(
    queries: Any, references: Any, k: int, own: Any = None, normalize: bool = False
) -> list[list[int]]:
    result = []
    for i, query in enumerate(queries):
        ranked = []
        for j, reference in enumerate(references):
            if own is None or own[i] != j:
                a, b = (unit(v) if normalize else list(v) for v in (query, reference))
                squares = math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))
                ranked.append((round(squares, 12), j))
        result.append([j for _, j in sorted(ranked)[:k]])
    return result


def unit(vector: Any) -> list[float]:
    length = math.sqrt(sum(int(x) * int(x) for x in vector))
    return [x / length if length else 0.0 for x in vector]


class TestNearestNeighbours:
    @pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, torch.tensor])
    def test_self_retrieval(self, kind: Any) -> None:
        x, queries = vectors(60), [3, 59, 0, 3]
        result = nearest_neighbours(kind(x), queries, 9, normalize=False)
        assert result.dtype == np.int64
        assert result.tolist() == brute_force(x[queries], x, 9, own=queries)

    def test_a_query_is_left_out_by_index_but_not_its_duplicates(self) -> None:
        x = np.ones((4, 2))
        assert nearest_neighbours(x, [2, 0], 3).tolist() == [[0, 1, 3], [1, 2, 3]]

    def test_separate_references(self) -> None:
        x, reference, queries = vectors(10), vectors(40, seed=1), np.array([9, 1])
        result = nearest_neighbours(x, queries, 40, reference, normalize=False)
        assert result.tolist() == brute_force(x[queries], reference, 40)

    def test_unit_length(self) -> None:
        x = np.random.default_rng(0).normal(size=(50, 4)) * np.linspace(0.1, 9, 50)[:, None]
        x = np.round(1000 * x).astype(int)
        result = nearest_neighbours(x, range(50), 10)
        assert result.tolist() == brute_force(x, x, 10, own=range(50), normalize=True)
        assert result.tolist() != nearest_neighbours(x, range(50), 10, normalize=False).tolist()

    def test_duplicates_stay_in_order_whatever_the_number_of_queries(self) -> None:
        random = np.random.default_rng(0)
        x = np.tile(random.normal(size=(1, 129)), (333, 1)).astype(np.float32)
        for queries in ([5], range(7), range(50)):
            expected = [[j for j in range(333) if j != i] for i in queries]
            assert nearest_neighbours(x, queries, 332).tolist() == expected

    def test_close_points_far_away(self) -> None:
        x = np.full((3, 512), 1e6)
        x[1, 0] += 2e-9
        x[2, 0] += 1e-9
        assert nearest_neighbours(x, [0], 2, normalize=False).tolist() == [[2, 1]]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((vectors(5), [0], 5), "k=5, but a query has only 4 references"),
            ((vectors(5), [0], 6, vectors(5)), "k=6, but a query has only 5 references"),
            ((vectors(5), [0], 0), "k must be a whole number"),
            ((vectors(5), [5], 1), "queries must be indices from 0 to 4, but one is 5"),
            ((vectors(5), [-1], 1), "queries must be indices from 0 to 4, but one is -1"),
            ((vectors(5), [], 1), r"queries must have shape \(Q,\) and not be empty"),
            ((vectors(5), [0.0], 1), "queries must be indices, but their dtype is torch.float64"),
            ((vectors(5), [True], 1), "queries must be indices, but their dtype is torch.bool"),
            ((vectors(5)[0], [0], 1), "embeddings must have shape"),
            ((np.full((2, 2), np.nan), [0], 1), "embeddings must be finite"),
            ((vectors(5), [0], 1, np.full((2, 3), np.inf)), "reference must be finite"),
            ((vectors(5), [0], 1, vectors(5, 4)), "3 dimensions, but reference has 4"),
        ],
    )
    def test_errors(self, arguments: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            nearest_neighbours(*arguments)


def flat(values: list[int], height: int = 96, width: int = 96, channels: int = 3) -> Any:
    """Return an image of one grey for each value."""
    return np.ones((1, height, width, channels), np.uint8) * np.array(values, np.uint8).reshape(
        -1, 1, 1, 1
    )


def cells(grid: NDArray[np.uint8], rows: int, columns: int, height: int, width: int) -> Any:
    """Yield row, column and framed picture, for pictures of the given size as drawn."""
    line = round(min(height, width) / 32)
    gap, height, width = 3 * line, height + 4 * line, width + 4 * line
    assert grid.dtype == np.uint8
    assert grid.shape == (rows * (height + gap) + gap, columns * (width + gap) + 2 * gap, 3)
    rest = grid.copy()
    found = []
    for row, column in np.ndindex(rows, columns):
        y = gap + row * (height + gap)
        x = gap + column * (width + gap) + (gap if column else 0)
        found.append((row, column, grid[y : y + height, x : x + width]))
        rest[y : y + height, x : x + width] = 255
    assert (rest == 255).all()
    return found


def colour(cell: NDArray[np.uint8], line: int) -> tuple[tuple[int, ...], bool]:
    """Return the colour of a frame and whether it is dashed, after checking its shape."""
    frame = np.ones(cell.shape[:2], bool)
    frame[line:-line, line:-line] = False
    white = (cell == 255).all(axis=-1)
    drawn = frame & ~white
    colours = {tuple(int(c) for c in pixel) for pixel in cell[drawn]}
    assert len(colours) == 1
    # The white strip between frame and picture, all four corners, and both symmetries.
    inner = cell[line:-line, line:-line]
    strip = np.ones(inner.shape[:2], bool)
    strip[line:-line, line:-line] = False
    assert (inner[strip] == 255).all()
    corners = [drawn[y, x] for y in (0, -1) for x in (0, -1)]
    assert all(corners)
    share = drawn.sum() / frame.sum()
    assert share == 1 or 0.4 < share < 0.7
    return colours.pop(), share < 1


class TestRetrievalGallery:
    def test_frames_and_pictures(self) -> None:
        images, labels = flat([10, 20, 30, 40, 50]), [7, 7, -3, -3, 7]
        grid = retrieval_gallery(images, [[1, 2, 4], [0, 3, 1]], labels, [0, 2])
        order = [[0, 1, 2, 4], [2, 0, 3, 1]]
        expected = [[GREY, GREEN, RED, GREEN], [GREY, RED, GREEN, RED]]
        for row, column, cell in cells(grid, 2, 4, 96, 96):
            assert (cell[6:-6, 6:-6] == images[order[row][column]]).all()
            is_red = expected[row][column] == RED
            assert colour(cell, 3) == (expected[row][column], is_red)

    def test_what_is_drawn_is_the_image_itself(self) -> None:
        images = np.random.default_rng(0).integers(0, 256, (3, 100, 130, 3)).astype(np.uint8)
        grid = retrieval_gallery(images, [[2], [0]], [0, 0, 1], [1, 2])
        for (_, _, cell), image in zip(cells(grid, 2, 2, 100, 130), (1, 2, 2, 0), strict=True):
            np.testing.assert_array_equal(cell[6:-6, 6:-6], images[image])

    def test_small_and_grey_images_are_enlarged(self) -> None:
        images = np.random.default_rng(0).integers(0, 256, (2, 28, 40, 1)).astype(np.uint8)
        grid = retrieval_gallery(images, [[1]], [0, 1], [0])
        drawn = cells(grid, 1, 2, 112, 160)
        for _, column, cell in drawn:
            picture = cell[8:-8, 8:-8]
            for y, x in np.ndindex(112, 160):
                assert (picture[y, x] == images[column, y // 4, x // 4]).all()

    def test_separate_references_tensors_and_other_channels(self) -> None:
        images, others = flat([10, 20]), flat([60, 70, 80], channels=1)
        grid = retrieval_gallery(
            torch.from_numpy(images),
            torch.tensor([[2, 0]]),
            torch.tensor([5, 6]),
            torch.tensor([1]),
            torch.from_numpy(others),
            torch.tensor([5, 5, 6]),
        )
        drawn = cells(grid, 1, 3, 96, 96)
        assert [int(cell[50, 50, 0]) for _, _, cell in drawn] == [20, 80, 60]
        assert [colour(cell, 3)[0] for _, _, cell in drawn] == [GREY, GREEN, RED]

    def test_large_images_have_wider_frames(self) -> None:
        images = flat([1, 2], height=224, width=300)
        drawn = cells(retrieval_gallery(images, [[1]], [0, 1], [0]), 1, 2, 224, 300)
        assert colour(drawn[1][2], 7) == (RED, True)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"images": flat([1, 2, 3]).astype(float)}, "images must be uint8"),
            ({"images": flat([1, 2, 3], channels=2)}, "images must have 1 or 3 channels"),
            ({"labels": [1, 2]}, r"labels must have shape \(3,\) like images, but got \(2,\)"),
            ({"labels": [1.0, 2.0, 3.0]}, "labels must be integers"),
            ({"queries": [3]}, "queries must be indices from 0 to 2, but one is 3"),
            ({"neighbours": [[0, 3]]}, "neighbours must be indices from 0 to 2, but one is 3"),
            ({"neighbours": [0, 1]}, r"neighbours must have shape \(Q, K\)"),
            ({"neighbours": [[0], [1]]}, "there are 1 queries, but 2 rows of neighbours"),
            ({"reference_images": flat([1])}, "must be given together"),
            ({"reference_labels": [1]}, "must be given together"),
            (
                {"reference_images": flat([1, 2], height=95), "reference_labels": [1, 2]},
                "resize them to one size",
            ),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        arguments = {
            "images": flat([1, 2, 3]),
            "neighbours": [[0, 1]],
            "labels": [0, 1, 1],
            "queries": [2],
        }
        with pytest.raises(ValueError, match=message):
            retrieval_gallery(**(arguments | change))


class TestSaveGallery:
    def test_the_file_holds_the_image(self, tmp_path: Path) -> None:
        grid = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
        path = tmp_path / "new" / "gallery.png"
        save_gallery(path, grid)
        save_gallery(str(path), grid)
        with Image.open(path) as image:
            assert image.format == "PNG"
            np.testing.assert_array_equal(np.asarray(image), grid)
        assert list(path.parent.iterdir()) == [path]

    def test_a_failure_leaves_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "gallery.png"
        path.write_bytes(b"old")

        def fail(*_: Any) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(galleries.os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            save_gallery(path, np.zeros((2, 2, 3), np.uint8))
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]

    def test_without_pillow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(ImportError, match="save_gallery needs Pillow"):
            save_gallery(tmp_path / "gallery.png", np.zeros((2, 2, 3), np.uint8))

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"written as \.png"):
            save_gallery(tmp_path / "gallery.jpg", np.zeros((2, 2, 3), np.uint8))
        grids: list[Any] = [np.zeros((2, 2, 3)), np.zeros((2, 2), np.uint8), [[[0, 0, 0]]]]
        for grid in grids:
            with pytest.raises(ValueError, match="grid must be a uint8 array"):
                save_gallery(tmp_path / "gallery.png", grid)
