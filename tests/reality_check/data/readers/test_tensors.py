"""Vectors and other tensors from files: what is found, what is mapped, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reality_check.config.datasets import TensorsData
from reality_check.data import ImageSet, TensorSet, load_dataset
from reality_check.data.readers.tensors import read_tensors
from reality_check.utils.errors import UsageError

X = np.arange(24, dtype=np.float32).reshape(8, 3)
Y = np.array([5, 5, 3, 3, 9, 9, 5, 3])


def check(path: Path, **names: str) -> TensorSet:
    data = read_tensors(path, **names)
    assert isinstance(data, TensorSet)
    assert data.samples.array().tolist() == X.tolist()
    assert data.labels.tolist() == [1, 1, 0, 0, 2, 2, 1, 0]
    return data


@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("X", "targets"), ("features", "labels")])
def test_the_usual_names_are_found(tmp_path: Path, x: str, y: str) -> None:
    np.savez(tmp_path / "a.npz", **{x: X, y: Y, "other": np.ones(3)})
    assert check(tmp_path / "a.npz").class_names == ("3", "5", "9")


def test_other_names_and_class_names_are_told(tmp_path: Path) -> None:
    words = np.array([f"class {label}" for label in range(10)])
    rows = np.array([f"row {row}" for row in range(8)])
    np.savez(tmp_path / "a.npz", mine=X, kinds=Y, words=words, rows=rows)
    data = check(tmp_path / "a.npz", x="mine", y="kinds", names="rows", class_names="words")
    assert data.class_names == ("class 3", "class 5", "class 9")
    assert data.sample_names is not None
    assert data.sample_names[2] == "row 2"


def test_labels_may_be_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=np.array(["b", "b", "a", "a", "c", "c", "b", "a"]))
    assert check(tmp_path / "a.npz").class_names == ("a", "b", "c")


def test_npy_with_labels_in_a_file_beside_it_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "labels.npy", Y)
    assert isinstance(check(tmp_path / "x.npy", y="labels.npy").samples.values, np.memmap)


@pytest.mark.parametrize("packed", [True, False])
def test_what_embed_writes_is_read_and_mapped(tmp_path: Path, packed: bool) -> None:
    """Into a folder; versions before wrote one file of the same arrays."""
    written = {
        "x": X.astype(np.float16),
        "y": Y,
        "class_names": np.array([f"{label}" for label in range(10)]),
        "origin": np.array("from a trunk"),
        "test_classes": np.array([5, 9]),
        "queries": Y == 5,
    }
    np.savez(tmp_path / "a.npz", **written)
    (tmp_path / "a").mkdir()
    for name, array in written.items():
        np.save(tmp_path / "a" / f"{name}.npy", array)
    data = check(tmp_path / ("a.npz" if packed else "a"))
    assert isinstance(data.samples.values, np.memmap) != packed
    assert (data.origin, data.test_classes) == ("from a trunk", (1, 2))
    assert data.queries is not None
    assert data.queries.tolist() == (Y == 5).tolist()


def test_uint8_images_stay_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.ones((8, 4, 4, 3), np.uint8), labels=Y)
    assert isinstance(read_tensors(tmp_path / "a.npz"), ImageSet)


def test_safetensors(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    about = {"class_names": json.dumps([str(n) for n in range(10)]), "origin": "elsewhere"}
    library.save_file({"x": X, "y": Y}, tmp_path / "a.safetensors", metadata=about)
    assert check(tmp_path / "a.safetensors").origin == "elsewhere"


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"x": X.tolist(), "label": Y})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = read_tensors(tmp_path / "a.parquet")
    assert data.samples.array().tolist() == X.tolist()
    uneven = arrow.table({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]})
    parquet.write_table(uneven, tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=r"'x' of .* has rows of different lengths.*pad or cut"):
        read_tensors(tmp_path / "b.parquet")


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    library = pytest.importorskip("datasets")
    data = library.Dataset.from_dict({"embeddings": X.tolist(), "label": Y.tolist()})
    data.save_to_disk(str(tmp_path / "folder"))
    check(tmp_path / "folder")


@pytest.mark.parametrize(
    ("arrays", "names", "text"),
    [
        (
            {"x": X},
            {},
            r"The labels of .* \(y: NAME\): there is no 'y' or 'labels' or .*, only 'x'",
        ),
        ({"y": Y}, {}, r"The samples of .* \(x: NAME\): there is no .*, only 'y'"),
        ({"x": X, "y": Y}, {"x": "z"}, "samples of .* there is no 'z'"),
        ({"x": X, "y": Y}, {"names": "z"}, "no 'z', only 'x', 'y'"),
        ({"x": X, "y": Y[:5]}, {}, r"labels of shape \(5,\).*for each of 8 samples"),
        ({"x": X, "y": np.ones((8, 2), int)}, {}, r"shape \(8, 2\).*2-d labels have no single"),
        ({"x": X, "y": np.ones(8)}, {}, "type float64, but they must be one integer or text"),
        ({"x": X, "y": Y, "class_names": np.array(["a"])}, {}, "labels 3..9, but 1 class names"),
        ({"x": np.where(X == 7, np.nan, X), "y": Y}, {}, "NaN or infinite values, first in row 2"),
        ({"x": np.where(X == 7, 1e19, X), "y": Y}, {}, "beyond 1e\\+18, NaN .* first in row 2"),
        ({"x": X.astype(object), "y": Y}, {}, "cannot be read"),
    ],
)
def test_refuses(tmp_path: Path, arrays: dict[str, Any], names: dict[str, str], text: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UsageError, match=text):
        read_tensors(tmp_path / "a.npz", **names)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.npz", b"no archive", "cannot be read"),
        ("a.txt", b"", "is not a file that can be read"),
        ("a.npy", None, "samples without labels"),
        ("missing.npz", None, "There is no file"),
        ("folder", "folder", "save_to_disk|needs the package datasets"),
    ],
)
def test_refuses_files(tmp_path: Path, name: str, content: Any, text: str) -> None:
    place = tmp_path / name
    if content == "folder":
        place.mkdir()
    elif content is not None:
        place.write_bytes(content)
    elif name.endswith("npy"):
        np.save(place, X)
    with pytest.raises(UsageError, match=text):
        read_tensors(place)


def test_the_yaml_names_the_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    config = TensorsData(name="mine", reader="npz", path=str(tmp_path / "a.npz"))
    assert load_dataset(config).name == "mine"
