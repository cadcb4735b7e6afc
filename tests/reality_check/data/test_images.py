from __future__ import annotations

import numpy as np
import pytest
import torch

from reality_check.data import residency
from reality_check.data.images import Images
from reality_check.data.store import PixelStore
from reality_check.utils.errors import UsageError

CPU = torch.device("cpu")


def many_sizes(channels: int = 3) -> tuple[Images, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes = [(4, 7), (5, 3), (1, 1), (6, 6), (4, 7)]
    singles = [rng.integers(0, 256, (*shape, channels), dtype=np.uint8) for shape in shapes]
    sizes = np.array([image.size for image in singles])
    offsets = np.cumsum(sizes) - sizes
    heights, widths = np.array(shapes).T
    flat = np.concatenate([image.reshape(-1) for image in singles])
    return Images(flat, offsets, heights, widths, channels), singles


@pytest.mark.parametrize("channels", [1, 3])
def test_every_image_is_found(channels: int) -> None:
    images, singles = many_sizes(channels)
    assert len(images) == 5
    assert images.shape is None
    for index, single in enumerate(singles):
        np.testing.assert_array_equal(images.image(index), single)


def test_rows_are_views() -> None:
    images, singles = many_sizes()
    for rows in (slice(1, 3), np.array([4, 0, 4]), np.array([True, False, False, True, False])):
        part = images[rows]
        expected = [singles[i] for i in np.arange(5)[rows]]
        assert len(part) == len(expected)
        for index, single in enumerate(expected):
            np.testing.assert_array_equal(part.image(index), single)
            assert np.shares_memory(part.image(index), images.pixels)


def test_images_of_one_size_are_an_array_again() -> None:
    array = np.random.default_rng(1).integers(0, 256, (6, 3, 4, 1), dtype=np.uint8)
    images = Images.from_array(array)
    assert images.shape == (3, 4, 1)
    np.testing.assert_array_equal(images.array(), array)
    assert np.shares_memory(images.array(), array)
    np.testing.assert_array_equal(np.asarray(images[np.array([5, 2])]), array[[5, 2]])
    # Of many sizes, two that agree.
    ragged, singles = many_sizes()
    expected = np.stack([singles[4], singles[0]])
    np.testing.assert_array_equal(ragged[np.array([4, 0])].array(), expected)
    with pytest.raises(UsageError, match=r"different sizes.*square"):
        ragged.array()


def test_a_strided_array_is_copied() -> None:
    array = np.arange(48, dtype=np.uint8).reshape(6, 2, 4, 1)[::2]
    np.testing.assert_array_equal(Images.from_array(array).array(), array)


@pytest.mark.parametrize("rows", [[0], [3, 0, 3, 5], [5, 4, 3, 2, 1, 0]])
def test_batches_of_one_size(rows: list[int]) -> None:
    array = np.random.default_rng(2).integers(0, 256, (8, 3, 4, 3), dtype=np.uint8)
    view = Images.from_array(array)[np.array([7, 1, 3, 5, 0, 2])]
    batch = PixelStore(view, CPU).batch(np.array(rows))
    assert batch.sizes is None
    np.testing.assert_array_equal(batch.pixels.numpy(), array[[7, 1, 3, 5, 0, 2]][rows])


def test_batches_of_many_sizes_repeat_edge_pixels() -> None:
    images, singles = many_sizes()
    rows = np.array([2, 1, 0])
    batch = PixelStore(images, CPU).batch(rows)
    assert batch.pixels.shape == (3, 5, 7, 3)
    assert batch.sizes is not None
    assert batch.sizes.tolist() == [[1, 1], [5, 3], [4, 7]]
    for padded, row in zip(batch.pixels.numpy(), rows, strict=True):
        height, width = singles[row].shape[:2]
        for y in range(5):
            for x in range(7):
                expected = singles[row][min(y, height - 1), min(x, width - 1)]
                assert padded[y, x].tolist() == expected.tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("resident", [True, False])
def test_batches_on_a_gpu(resident: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "_MEMORY_SHARE", 0.4 if resident else 0.0)
    images, _ = many_sizes()
    array = np.random.default_rng(2).integers(0, 256, (8, 3, 4, 3), dtype=np.uint8)
    for source in (images, Images.from_array(array)):
        view = source[np.array([4, 2, 0, 1])]
        cuda = PixelStore(view, torch.device("cuda"))
        assert cuda.resident == resident
        # The second one is made while the first may still be on its way.
        batches = [np.array([3, 3, 0, 2]), np.array([0, 2, 3, 1])]
        for rows, found in zip(batches, [cuda.batch(rows) for rows in batches], strict=True):
            expected = PixelStore(view, CPU).batch(rows)
            assert found.pixels.is_cuda
            torch.testing.assert_close(found.pixels.cpu(), expected.pixels)
            assert (found.sizes is None) == (expected.sizes is None)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((2, 3, 4, 3), np.float32), "float32.*uint8"),
        (np.zeros((2, 3, 4), np.uint8), r"\(2, 3, 4\)"),
        (np.zeros((2, 3, 4, 2), np.uint8), "C = 1"),
        (np.zeros((0, 3, 4, 1), np.uint8), "at least one"),
    ],
)
def test_other_arrays_are_refused(array: np.ndarray, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Images.from_array(array)
