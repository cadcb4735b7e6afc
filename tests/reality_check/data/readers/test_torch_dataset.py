"""Any data set of torch: what its items may be, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from reality_check.config.datasets import NamedDataset
from reality_check.config.messages import validate
from reality_check.config.named import expand
from reality_check.data import ImageSet, TensorSet, load_dataset, read_torch_dataset
from reality_check.utils.errors import UsageError

PICTURE = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


class Given(torch.utils.data.Dataset):
    """A data set of the items of one kind, two a class."""

    def __init__(self, kind: str) -> None:
        self.item = ITEMS[kind]

    def __len__(self) -> int:
        return 0 if self.item is None else 6

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Named(Given):
    classes = ("ant", "bee", "cat")


ITEMS: dict[str, Any] = {
    "vectors": lambda n: (torch.full((3,), float(n)), n // 2),
    "arrays": lambda n: (np.full((2, 2), n, np.int32), f"class {n // 2}"),
    "labels are tensors": lambda n: (torch.full((3,), float(n)), torch.tensor(n // 2)),
    "pictures": lambda n: (Image.fromarray(PICTURE), n // 2, "more"),
    "grey pictures": lambda n: (Image.fromarray(PICTURE[:, :, 0]), n // 2),
    "palettes": lambda n: (Image.fromarray(PICTURE).convert("P"), n // 2),
    "as torchvision": lambda n: (torch.from_numpy(PICTURE).permute(2, 0, 1), n // 2),
    "other sizes": lambda n: (Image.fromarray(PICTURE[:, : 5 - n % 2]), n // 2),
    "nothing": None,
    "no pairs": lambda n: torch.ones(3),
    "two labels": lambda n: (torch.ones(3), torch.tensor([1, 2])),
    "objects": lambda n: (object(), n),
    "breaks": lambda n: [][n],
    "nan": lambda n: (torch.tensor([float("nan") if n == 4 else 1.0]), n // 2),
}


def read(kind: str, cls: str = "Given", size: int | None = None) -> Any:
    return read_torch_dataset(f"{__name__}.{cls}", {"kind": kind}, "toy", size)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[Given.__module__])


def test_vectors_are_kept() -> None:
    for kind in ("vectors", "labels are tensors"):
        data = read(kind, "Named")
        assert isinstance(data, TensorSet)
        assert data.samples.array().tolist() == [[n] * 3 for n in range(6)]
        assert (data.labels.tolist(), data.class_names) == ([0, 0, 1, 1, 2, 2], Named.classes)


def test_integers_and_texts_are_kept() -> None:
    data = read("arrays", "Named")
    assert data.samples.input_shape == ((2, 2), torch.int32)
    assert data.class_names == ("class 0", "class 1", "class 2")


@pytest.mark.parametrize("kind", ["pictures", "as torchvision"])
def test_images_become_an_image_set(kind: str) -> None:
    data = read(kind)
    assert isinstance(data, ImageSet)
    assert (data.images.array() == PICTURE).all()


def test_grey_images_palettes_and_sizes() -> None:
    assert read("grey pictures").image_shape == (4, 5, 1)
    assert read("palettes").image_shape == (4, 5, 3)
    assert read("other sizes", size=8).image_shape == (8, 8, 3)


def test_data_sets_of_the_libraries_go_by_name() -> None:
    pytest.importorskip("torchvision")
    sizes = {"size": 3, "image_size": [3, 8, 8], "num_classes": 2}
    data = read_torch_dataset("torchvision:FakeData", sizes, "fake")
    assert (len(data), data.image_shape) == (3, (8, 8, 3))


def test_the_shipped_mnist_is_read_by_torchvision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setenv("REALITY_CHECK_DATA", str(tmp_path))
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        images, labels = bytes(range(18)), bytes((7, 3))
        for name, sizes, content in (("images", (2, 3, 3), images), ("labels", (2,), labels)):
            head = bytes((0, 0, 8, len(sizes))) + np.array(sizes, ">u4").tobytes()
            file = raw / f"{part}-{name}-idx{len(sizes)}-ubyte"
            file.write_bytes(head + content)
    config = validate(NamedDataset, {"dataset": expand("mnist", "dataset", "datasets", None)}, "x")
    data = load_dataset(config.dataset)
    assert (data.name, data.class_names) == ("mnist", ("3 - three", "7 - seven"))
    assert data.samples.array().ravel().tolist() == list(range(18))


def test_folders_of_earlier_versions_are_read_though_mnist_had_a_reader() -> None:
    earlier = {"name": "mine", "reader": "mnist", "path": "/data", "download": False}
    config = validate(NamedDataset, {"dataset": earlier}, "x").dataset
    assert (config.name, config.dataset) == ("mine", "torchvision:MNIST")
    assert validate(NamedDataset, {"dataset": config.plain()}, "x").dataset == config


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nothing", "is empty"),
        ("no pairs", r"item 0 is Tensor, but it must be \(sample, label\)"),
        ("two labels", "label of item 0 is .* must be an integer or a text"),
        ("objects", "sample of item 0 is object, but it must be a PIL image"),
        ("breaks", "item 0 cannot be read: IndexError"),
        ("other sizes", r"item 1 is uint8 of shape \(4, 4, 3\), but item 0 .*write size: 64"),
        ("nan", "NaN or infinite values, first in row 4"),
    ],
)
def test_refuses(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read(kind)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("keras:MNIST", "there is no library 'keras'; write torchvision:MNIST, pml:MNIST"),
        ("pml:CUBB", "pml has no data set 'CUBB'.*CUB"),
        ("pathlib.Path", "is not a map-style data set"),
    ],
)
def test_refuses_names(name: str, text: str, tmp_path: Path) -> None:
    if name.startswith("pml:"):
        pytest.importorskip("torchvision")
    with pytest.raises(UsageError, match=text):
        read_torch_dataset(name, {}, "toy")
