from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import file_server

from reality_check.config.datasets import MnistData
from reality_check.data import load_dataset, read_mnist
from reality_check.data.readers import mnist
from reality_check.utils.errors import UsageError


def idx(array: np.ndarray) -> bytes:
    """The idx format, written by its definition."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def arrays(train: int = 40, test: int = 20) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    found = []
    for count in (train, test):
        found.append(draw.integers(0, 256, (count, 28, 28)).astype(np.uint8))
        found.append((np.arange(count) % 10).astype(np.uint8))
    return found


def save(folder: Path, packed: bool = True, contents: list[np.ndarray] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(mnist.FILES, contents or arrays(), strict=True):
        if packed:
            (folder / name).write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name.removesuffix(".gz")).write_bytes(idx(array))
    return folder


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("place", ["", "raw", "MNIST/raw"])
def test_training_images_then_test_images(tmp_path: Path, packed: bool, place: str) -> None:
    save(tmp_path / place, packed)
    data = read_mnist(tmp_path, check_counts=False)
    train, train_labels, test, test_labels = arrays()
    np.testing.assert_array_equal(data.images.array()[..., 0], np.concatenate([train, test]))
    np.testing.assert_array_equal(data.labels, np.concatenate([train_labels, test_labels]))
    assert data.class_names == tuple("0123456789")
    assert data.image_shape == (28, 28, 1)
    assert (data.name, data.test_classes) == ("mnist", None)


def test_file_names_with_a_dot(tmp_path: Path) -> None:
    save(tmp_path, packed=False)
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(read_mnist(tmp_path, check_counts=False)) == 60


def test_fashion(tmp_path: Path) -> None:
    save(tmp_path / "FashionMNIST" / "raw")
    with pytest.raises(UsageError, match=r"no train-images-idx3-ubyte\.gz"):
        read_mnist(tmp_path, check_counts=False)  # those of MNIST are not there
    config = MnistData(
        name="fashion_mnist", reader="fashion_mnist", path=str(tmp_path), check_counts=False
    )
    data = load_dataset(config)
    assert data.name == "fashion_mnist"
    assert (data.class_names[0], data.class_names[9]) == ("T-shirt/top", "Ankle boot")


def test_counts_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has 40 and 20 images, but 60,000 and 10,000"):
        read_mnist(save(tmp_path))


def test_missing_files_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path)
    (tmp_path / mnist.FILES[3]).unlink()
    with pytest.raises(UsageError, match=r"no t10k-labels-idx1-ubyte\.gz") as caught:
        read_mnist(tmp_path)
    for advice in ("dataset.path=", "dataset.download=true", "https://"):
        assert advice in str(caught.value)
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(UsageError, match=r"NOWHERE.*is not set.*dataset\.download=true"):
        read_mnist("${NOWHERE}/mnist")
    with pytest.raises(UsageError, match="Did you mean 'fashion_mnist'"):
        read_mnist(tmp_path, "fashionmnist")


@pytest.mark.parametrize(
    ("number", "content"),
    [
        (0, gzip.compress(idx(arrays()[0]))[:-200]),
        (0, gzip.compress(idx(arrays()[0])[:-1])),
        (0, gzip.compress(idx(arrays()[0]) + b"x")),
        (0, gzip.compress(idx(arrays()[1]))),
        (1, gzip.compress(idx(arrays()[0]))),
        (0, gzip.compress(b"\0\0\x0d\x03" + idx(arrays()[0])[4:])),
        (1, b"<html>not found</html>"),
        (1, gzip.compress(b"\0\0")),
        (1, b""),
    ],
    ids=range(9),  # not the bytes, which hold the time
)
def test_damaged_files_are_named(tmp_path: Path, number: int, content: bytes) -> None:
    save(tmp_path)
    (tmp_path / mnist.FILES[number]).write_bytes(content)
    with pytest.raises(UsageError, match=f"{mnist.FILES[number]}.*fetch it again") as caught:
        read_mnist(tmp_path, check_counts=False)
    assert "\n" not in str(caught.value)


def test_images_and_labels_must_agree(tmp_path: Path) -> None:
    contents = arrays()
    contents[3] = contents[3][:-1]
    with pytest.raises(UsageError, match=r"has 20 images, but .* has 19 labels"):
        read_mnist(save(tmp_path, contents=contents), check_counts=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[mnist.IdxDataset]:
    served = save(tmp_path / "served")
    with file_server.served(served) as address:
        contents = [(served / name).read_bytes() for name in mnist.FILES]
        yield replace(
            mnist.DATASETS["mnist"],
            addresses=(f"{address}/",),
            checksums=tuple(
                hashlib.md5(content, usedforsecurity=False).hexdigest() for content in contents
            ),
        )


def test_download(
    tmp_path: Path, server: mnist.IdxDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mnist.DATASETS, "mnist", server)
    data = read_mnist(tmp_path / "new", download=True, check_counts=False)
    np.testing.assert_array_equal(data.images.array()[:40, ..., 0], arrays()[0])
    assert len(read_mnist(tmp_path / "new", check_counts=False)) == 60


@pytest.mark.data
def test_the_real_mnist(real_data: Path, tmp_path: Path) -> None:
    with np.load(real_data / "mnist" / "mnist_28.npz") as arrays:
        images, labels = arrays["images"][..., 0], arrays["labels"].astype(np.uint8)
        parts = [arrays["split"] == 0, arrays["split"] == 1]
    contents = [array[part] for part in parts for array in (images, labels)]
    data = read_mnist(save(tmp_path, packed=False, contents=contents))
    assert (len(data), data.image_shape) == (70_000, (28, 28, 1))
    assert np.bincount(data.labels[:60_000]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    np.testing.assert_array_equal(data.images.image(60_000)[..., 0], contents[2][0])
