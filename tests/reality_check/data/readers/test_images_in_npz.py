from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reality_check.data import ImageSet, read_tensors
from reality_check.utils.errors import UsageError


def read(path: Path | str, where: Any = None, **arguments: Any) -> ImageSet:
    images = read_tensors(path, where=where, **arguments)
    assert isinstance(images, ImageSet)
    return images


def save(folder: Path, **changes: object) -> Path:
    arrays: dict[str, object] = {
        "images": np.arange(8 * 4, dtype=np.uint8).reshape(8, 2, 2, 1),
        "labels": np.array([5, 2, 5, 2, 3, 3, 2, 5]),
        "class_names": np.array(["zero", "one", "two", "three", "four", "five"]),
        "split": np.array([0, 0, 0, 0, 1, 1, 2, 2], np.int8),
    }
    arrays |= changes
    path = folder / "toy.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def test_all_rows(tmp_path: Path) -> None:
    data = read(save(tmp_path))
    assert data.class_names == ("two", "three", "five")
    assert data.labels.tolist() == [2, 0, 2, 0, 1, 1, 0, 2]
    assert data.labels.dtype == np.int64
    assert data.name == "toy"
    np.testing.assert_array_equal(data.images.array().ravel(), np.arange(32))


@pytest.mark.parametrize(
    ("where", "rows", "names"),
    [
        ({"split": 0}, [0, 1, 2, 3], ("two", "five")),
        ({"split": [1, 2]}, [4, 5, 6, 7], ("two", "three", "five")),
        ({"split": 2, "labels": 5}, [7], ("five",)),
        ({}, list(range(8)), ("two", "three", "five")),
    ],
)
def test_where_keeps_rows(
    tmp_path: Path, where: dict[str, int | list[int]], rows: list[int], names: tuple[str, ...]
) -> None:
    data = read(save(tmp_path), where)
    assert data.class_names == names
    np.testing.assert_array_equal(data.images.array()[:, 0, 0, 0], np.array(rows) * 4)


def test_text_labels_and_images_without_channels(tmp_path: Path) -> None:
    labels = np.array(["b", "a"] * 4)
    images = np.zeros((8, 2, 3), np.uint8)
    data = read(save(tmp_path, labels=labels, images=images, class_names=None))
    assert data.class_names == ("a", "b")
    assert data.labels[:2].tolist() == [1, 0]
    assert data.image_shape == (2, 3, 1)


def test_variables_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path)
    monkeypatch.setenv("SOME_DATA", str(tmp_path))
    assert read("${SOME_DATA}/toy.npz").num_classes == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read("~/toy.npz").num_classes == 3
    with pytest.raises(UsageError, match=r"SOME_DATE, which is not set.*Did you mean 'SOME_DATA'"):
        read("${SOME_DATE}/toy.npz")


def test_official_test_classes(tmp_path: Path) -> None:
    split = np.array([0, 1, 0, 1, 1, 1, 1, 0], np.int8)  # classes 2 and 3 are tested, 5 is not
    path = save(tmp_path, split=split)
    data = read(path, test={"split": 1})
    assert data.test_classes == (0, 1)
    assert read(path).test_classes is None
    kept = read(path, {"labels": [3, 5]}, test={"split": 1})
    assert (kept.class_names, kept.test_classes) == (("three", "five"), (0,))


@pytest.mark.parametrize(
    ("changes", "arguments", "text"),
    [
        ({}, {"x": "imagse"}, "no 'imagse', only .*'labels'.*Did you mean 'images'"),
        ({}, {"where": {"splt": 0}}, "no array 'splt'"),
        ({"split": np.zeros(8)}, {"where": {"split": 0}}, "'split' .* float64 .*integers or texts"),
        ({}, {"where": {"split": 7}}, "No row .* split = 7.*0, 1, 2"),
        ({}, {"test": {"split": 1, "labels": 5}}, "No row .* labels"),
        ({}, {"test": {"split": [1, 2]}}, "class '2' .* has samples in the test and others"),
        ({}, {"where": {"split": 0}, "test": {"split": 1}}, "No row .* 'where' keeps"),
        ({"images": np.uint8(3)}, {}, r"shape \(\)"),
        ({"labels": np.array([1, 2, None] + [1] * 5, dtype=object)}, {}, "Object arrays"),
    ],
)
def test_refuses(
    tmp_path: Path, changes: dict[str, object], arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        read(save(tmp_path, **changes), **arguments)  # type: ignore[arg-type]
