from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reality_check.data import read_npz
from reality_check.utils.errors import UsageError


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
    data = read_npz(save(tmp_path))
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
    data = read_npz(save(tmp_path), where)
    assert data.class_names == names
    np.testing.assert_array_equal(data.images.array()[:, 0, 0, 0], np.array(rows) * 4)


def test_text_labels_and_images_without_channels(tmp_path: Path) -> None:
    labels = np.array(["b", "a"] * 4)
    images = np.zeros((8, 2, 3), np.uint8)
    data = read_npz(save(tmp_path, labels=labels, images=images, class_names=None))
    assert data.class_names == ("a", "b")
    assert data.labels[:2].tolist() == [1, 0]
    assert data.image_shape == (2, 3, 1)


def test_names_default_to_labels_and_keys_can_be_chosen(tmp_path: Path) -> None:
    path = save(tmp_path, class_names=None, x=np.ones((8, 2, 2, 3), np.uint8), y=np.arange(8) // 2)
    assert read_npz(path).class_names == ("2", "3", "5")
    data = read_npz(path, images="x", labels="y")
    assert data.class_names == ("0", "1", "2", "3")
    assert data.image_shape == (2, 2, 3)


def test_variables_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path)
    monkeypatch.setenv("SOME_DATA", str(tmp_path))
    assert read_npz("${SOME_DATA}/toy.npz").num_classes == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_npz("~/toy.npz").num_classes == 3
    with pytest.raises(UsageError, match=r"SOME_DATE, which is not set.*Did you mean 'SOME_DATA'"):
        read_npz("${SOME_DATE}/toy.npz")


def test_official_test_classes(tmp_path: Path) -> None:
    split = np.array([0, 1, 0, 1, 1, 1, 1, 0], np.int8)  # classes 2 and 3 are tested, 5 is not
    path = save(tmp_path, split=split)
    data = read_npz(path, test={"split": 1})
    assert data.test_classes == (0, 1)
    assert read_npz(path).test_classes is None
    kept = read_npz(path, {"labels": [3, 5]}, test={"split": 1})
    assert (kept.class_names, kept.test_classes) == (("three", "five"), (0,))


@pytest.mark.parametrize(
    ("changes", "arguments", "text"),
    [
        ({}, {"images": "imagse"}, "no array 'imagse', only .*'labels'.*Did you mean 'images'"),
        ({"labels": None}, {}, "no array 'labels'"),
        ({}, {"where": {"splt": 0}}, "no array 'splt'"),
        ({}, {"where": {"split": 7}}, "No row .* split = 7.*0, 1, 2"),
        ({}, {"class_names": "names"}, "no array 'names'"),
        ({}, {"test": {"split": 1, "labels": 5}}, "No row .* labels"),
        ({}, {"test": {"split": [1, 2]}}, "class 'two' .* has rows in 'test' and others"),
        ({}, {"where": {"split": 0}, "test": {"split": 1}}, "No row .* 'where' keeps"),
        ({"images": np.zeros((8, 2, 2, 1))}, {}, "float64.*uint8"),
        ({"images": np.zeros((8, 2), np.uint8)}, {}, r"shape \(8, 2\)"),
        ({"images": np.uint8(3)}, {}, r"shape \(\)"),
        ({"labels": np.zeros(7, int)}, {}, r"\(7,\).*\(8,\)"),
        ({"labels": np.zeros(8)}, {}, "float64"),
        ({"labels": np.array([0, 1, 2, 3, 4, 5, 6, 7])}, {}, "span 0..7"),
        ({"labels": np.array([1, 2, None] + [1] * 5, dtype=object)}, {}, "Python objects"),
    ],
)
def test_refuses(
    tmp_path: Path, changes: dict[str, object], arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        read_npz(save(tmp_path, **changes), **arguments)  # type: ignore[arg-type]


def test_refuses_files_that_are_not_npz(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        read_npz(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("no zip")
    with pytest.raises(UsageError, match="cannot be read"):
        read_npz(tmp_path / "text.npz")
    whole = save(tmp_path).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="cannot be read"):
        read_npz(tmp_path / "half.npz")
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(UsageError, match="single array"):
        read_npz(tmp_path / "single.npy")
