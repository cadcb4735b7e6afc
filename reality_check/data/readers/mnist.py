"""Reader of MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): 10 classes, 28 x 28."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reality_check.data.images import Images
from reality_check.data.readers.download import RemoteFile
from reality_check.data.readers.download import download as download_file
from reality_check.data.sample_set import ImageSet
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path
from reality_check.utils.text import nearest


@dataclass(frozen=True)
class IdxDataset:
    """A data set in four files of the idx format.

    Args:
        folder: name of the folder that torchvision keeps it in.
        addresses: where the files lie.
        checksums: md5 of each file of :data:`FILES` (torchvision's).
        class_names: name of each label.
    """

    folder: str
    addresses: tuple[str, ...]
    checksums: tuple[str, ...]
    class_names: tuple[str, ...]


#: Images and labels for training, then for testing; each may also lie unpacked, without ``.gz``.
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)

DATASETS = {
    "mnist": IdxDataset(
        "MNIST",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        tuple("0123456789"),
    ),
    "fashion_mnist": IdxDataset(
        "FashionMNIST",
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        (
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
    ),
}

_COUNTS = (60_000, 10_000)


def read_mnist(
    path: str | Path, name: str = "mnist", download: bool = False, check_counts: bool = True
) -> ImageSet:
    """Read the training and the test images of MNIST or Fashion-MNIST as one set.

    Both parts have the same ten classes, so there are no official test classes.

    Args:
        path: the folder with the four files of :data:`FILES`, packed or not, or the folder above
            torchvision's ``MNIST/raw`` or ``FashionMNIST/raw``; ``~`` and ``${VAR}`` are expanded.
        name: ``"mnist"`` or ``"fashion_mnist"``.
        download: fetch the files that are missing into ``path``.
        check_counts: refuse anything but the published 60,000 and 10,000 images.

    Returns:
        The 70,000 images, shape (28, 28, 1), the training images first.

    Raises:
        UsageError: a file is missing, damaged or not complete.
    """
    if name not in DATASETS:
        raise UsageError(
            f"{name!r} is no data set in idx files; write 'mnist' or 'fashion_mnist'."
            + nearest(name, DATASETS)
        )
    known = DATASETS[name]
    try:
        folder = expand_path(path)
    except UsageError as error:
        raise UsageError(f"{error} {_advice(known)}") from None
    files = [_find(folder, known, number, download) for number in range(len(FILES))]
    parts = [_read_part(*files[:2]), _read_part(*files[2:])]
    counts = tuple(len(labels) for _, labels in parts)
    if check_counts and counts != _COUNTS:
        raise UsageError(
            f"{name} in {str(folder)!r} has {counts[0]:,} and {counts[1]:,} images, but "
            f"{_COUNTS[0]:,} and {_COUNTS[1]:,} are published; delete its files and fetch them "
            "again, or write dataset.check_counts=false."
        )
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    pixels = Images.from_array(images[..., None])
    return ImageSet(pixels, labels.astype(np.int64), known.class_names, name)


def _find(folder: Path, known: IdxDataset, number: int, download: bool) -> Path:
    packed = FILES[number]
    plain = packed.removesuffix(".gz")
    names = (plain, packed, plain.replace("-idx", ".idx"))
    for place in (folder, folder / "raw", folder / known.folder / "raw"):
        for name in names:
            if (place / name).is_file():
                return place / name
    urls = tuple(address + packed for address in known.addresses)
    if download:
        return download_file(RemoteFile(packed, urls, f"md5:{known.checksums[number]}"), folder)
    raise UsageError(f"There is no {packed} (nor {plain}) in {str(folder)!r}. {_advice(known)}")


def _advice(known: IdxDataset) -> str:
    return (
        f"If {known.folder} is elsewhere, write dataset.path=/my/folder; if not, write "
        "dataset.download=true and a dataset.path to put it, or download its four files "
        f"({FILES[0]}, ...) from {known.addresses[0]} into that folder."
    )


def _read_part(images_file: Path, labels_file: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = _read_idx(images_file, 3), _read_idx(labels_file, 1)
    if len(images) != len(labels):
        raise UsageError(
            f"{str(images_file)!r} has {len(images):,} images, but {str(labels_file)!r} has "
            f"{len(labels):,} labels; fetch both again."
        )
    return images, labels


def _read_idx(file: Path, dimensions: int) -> np.ndarray:
    """Read a file of unsigned bytes: two zeros, type 8, number of dimensions, the dimensions."""
    try:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{str(file)!r} cannot be read ({error}); fetch it again.") from error
    start = 4 + 4 * dimensions
    shape = tuple(
        int(n) for n in np.frombuffer(content[4:start], ">u4", len(content[4:start]) // 4)
    )
    whole = len(shape) == dimensions and len(content) == start + math.prod(shape)
    if content[:4] != bytes((0, 0, 8, dimensions)) or not whole:
        raise UsageError(
            f"{str(file)!r} is not a whole idx file of unsigned bytes with {dimensions} "
            f"dimension{'s' if dimensions > 1 else ''}; fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
