from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.file_server import served

from reality_check.config.datasets import OmniglotData
from reality_check.data import ImageFiles, decode_files, load_dataset
from reality_check.data.readers import omniglot
from reality_check.data.readers._published import PublishedDataset, count
from reality_check.data.readers.omniglot import OMNIGLOT
from reality_check.utils.errors import UsageError

PARTS = {
    "images_background": {"Greek": 3, "Early_Aramaic": 2},
    "images_evaluation": {"Angelic": 2, "Zulu": 1},
}
NAMES = (
    "Early_Aramaic/character01",
    "Early_Aramaic/character02",
    "Greek/character01",
    "Greek/character02",
    "Greek/character03",
    "Angelic/character01",
    "Angelic/character02",
    "Zulu/character01",
)


def make_omniglot(root: Path, drawings: int = 20) -> Path:
    """The genuine layout: 105 x 105, 1 bit, ink black; image N of character K has 10 K + N dots."""
    character = 0
    for part, alphabets in PARTS.items():
        for alphabet in sorted(alphabets):
            for number in range(1, alphabets[alphabet] + 1):
                folder = root / part / alphabet / f"character{number:02d}"
                folder.mkdir(parents=True)
                character += 1
                for drawing in range(1, drawings + 1):
                    pixels = np.ones((105, 105), bool)
                    pixels.ravel()[: 10 * character + drawing] = False
                    image = Image.fromarray(pixels)
                    image.save(folder / f"{character:04d}_{drawing:02d}.png")
    return root


def pack(root: Path, into: Path, part: str) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(into / f"{part}.zip", "w") as archive:
        for path in sorted((root / part).rglob("*")):
            archive.write(path, path.relative_to(root))
    return into / f"{part}.zip"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_omniglot(tmp_path / "omniglot")


def list_omniglot(path: Path) -> ImageFiles:
    return OMNIGLOT.list_files(path, check_counts=False)


def test_background_first_each_part_sorted(tree: Path) -> None:
    files = list_omniglot(tree)
    assert files.class_names == NAMES
    assert files.test_classes == (5, 6, 7)
    assert files.labels.tolist() == [label for label in range(8) for _ in range(20)]
    for row, (path, label) in enumerate(zip(files.paths, files.labels, strict=True)):
        character, drawing = path.rsplit("/", 1)[1].removesuffix(".png").split("_")
        assert (int(character), int(drawing)) == (label + 1, row % 20 + 1)


def test_pixels_are_dark_ink_on_white(tree: Path) -> None:
    data = decode_files(list_omniglot(tree), 105, 1)
    assert data.image_shape == (105, 105, 1)
    for row in (0, 57, 159):
        dots = 10 * (row // 20 + 1) + row % 20 + 1
        flat = data.images.image(row).ravel()
        assert (flat[:dots] == 0).all()
        assert (flat[dots:] == 255).all()


def test_every_layout_gives_the_same(tree: Path, tmp_path: Path) -> None:
    expected = decode_files(list_omniglot(tree), 28, 1).fingerprint()
    for part in PARTS:
        pack(tree, tmp_path / "zips", part)
    pack(tree, tmp_path / "mixed", "images_background")
    (tmp_path / "mixed" / "images_evaluation").symlink_to(tree / "images_evaluation")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "omniglot-py").symlink_to(tree)
    for place in ("zips", "mixed", "torchvision"):
        assert decode_files(list_omniglot(tmp_path / place), 28, 1).fingerprint() == expected


def test_missing_and_empty_parts_are_named(tree: Path) -> None:
    (tree / "images_evaluation").rename(tree / "elsewhere")
    with pytest.raises(UsageError, match=r"Omniglot in '.*' lacks images_evaluation\."):
        list_omniglot(tree)
    (tree / "images_evaluation" / "Greek").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has no images ALPHABET/characterNN/\*\.png"):
        list_omniglot(tree)


def test_counts_are_checked(tree: Path) -> None:
    with pytest.raises(UsageError, match=r"8 classes, 160 images, 3 test classes.*but 1,623"):
        OMNIGLOT.list_files(tree)


@pytest.fixture
def served_omniglot(tree: Path, tmp_path: Path) -> Iterator[PublishedDataset]:
    """The archives of the small tree, offered on this machine."""
    paths = [pack(tree, tmp_path / "served", part) for part in PARTS]
    with served(tmp_path / "served") as address:
        archives = tuple(
            replace(
                archive,
                urls=(f"{address}/{path.name}",),
                checksum="md5:" + hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest(),
            )
            for archive, path in zip(OMNIGLOT.archives, paths, strict=True)
        )
        yield replace(OMNIGLOT, archives=archives, counts=count(OMNIGLOT.list_root(tree)))


def test_download(
    tree: Path,
    tmp_path: Path,
    served_omniglot: PublishedDataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(omniglot, "read", served_omniglot.read)
    config = {"reader": "omniglot", "path": str(tmp_path / "new" / "folder"), "size": 28}
    data = load_dataset(OmniglotData(**config, download=True))  # type: ignore[arg-type]
    assert data.fingerprint() == decode_files(list_omniglot(tree), 28, 1).fingerprint()
    assert data.image_shape == (28, 28, 1)
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        "images_background.zip",
        "images_evaluation.zip",
    }
    again = load_dataset(OmniglotData(**config))  # type: ignore[arg-type]
    assert again.fingerprint() == data.fingerprint()


@pytest.mark.data
def test_the_real_omniglot(real_data: Path) -> None:
    files = OMNIGLOT.list_files(real_data / "omniglot")
    assert (len(files), len(files.class_names)) == (32_460, 1_623)
    assert files.test_classes == tuple(range(964, 1_623))
    assert np.bincount(files.labels).tolist() == [20] * 1_623
    data = decode_files(files, 28, 1)
    assert data.image_shape == (28, 28, 1)
    with np.load(real_data / "omniglot" / "omniglot_28.npz") as peer:
        np.testing.assert_array_equal(peer["labels"], data.labels)
        np.testing.assert_array_equal(peer["split"] == 1, data.labels >= 964)
        assert [str(name).split("/")[-2:] for name in peer["class_names"]] == [
            name.split("/") for name in data.class_names
        ]
        difference = np.abs(peer["images"].astype(int) - data.images.array())
    assert difference.mean() < 6  # a box filter there, a triangle here
