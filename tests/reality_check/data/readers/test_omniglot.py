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
from reality_check.data import decode_files, list_omniglot, load_dataset
from reality_check.data.readers import omniglot
from reality_check.data.readers.download import RemoteFile
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


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_data" not in request.fixturenames:
        counts = {part: sum(alphabets.values()) for part, alphabets in PARTS.items()}
        monkeypatch.setattr(omniglot, "CHARACTERS", counts)


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


def test_missing_parts_say_what_to_do(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "images_evaluation").rename(tree / "elsewhere")
    with pytest.raises(UsageError, match="no images_evaluation of Omniglot") as caught:
        list_omniglot(tree)
    text = str(caught.value)
    for advice in ("dataset.path=", "dataset.download=true", "images_evaluation.zip", "https://"):
        assert advice in text
    with pytest.raises(UsageError, match="no images_background"):
        list_omniglot(tree / "absent")
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(UsageError, match=r"NOWHERE.*is not set.*dataset\.download=true"):
        list_omniglot("${NOWHERE}/omniglot")
    (tree / "images_evaluation" / "Greek").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has no images ALPHABET/characterNN/\*\.png"):
        list_omniglot(tree)


def test_counts_are_checked(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tree / "images_evaluation" / "Zulu" / "character01" / "0008_20.png"
    path.unlink()
    with pytest.raises(UsageError, match=r"Zulu/character01 has 19, but 3 of 20.*check_counts"):
        list_omniglot(tree)
    assert len(list_omniglot(tree, check_counts=False)) == 159
    monkeypatch.setattr(omniglot, "DRAWINGS", 19)
    monkeypatch.setitem(omniglot.CHARACTERS, "images_background", 964)
    with pytest.raises(UsageError, match=r"has 5 characters.*but 964"):
        list_omniglot(tree)


def test_published_numbers() -> None:
    assert omniglot.DRAWINGS == 20
    assert {name: archive.checksum for name, archive in omniglot.ARCHIVES.items()} == {
        "images_background": "md5:68d2efa1b9178cc56df9314c21c6e718",
        "images_evaluation": "md5:6b91aef0f799c5bb55b94e3f2daec811",
    }


@pytest.fixture
def server(tree: Path, tmp_path: Path) -> Iterator[dict[str, RemoteFile]]:
    """The archives of the small tree, offered on this machine."""
    paths = {part: pack(tree, tmp_path / "served", part) for part in PARTS}
    with served(tmp_path / "served") as address:
        yield {
            part: replace(
                omniglot.ARCHIVES[part],
                urls=(f"{address}/{part}.zip",),
                checksum="md5:" + hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest(),
            )
            for part, path in paths.items()
        }


def test_download(
    tree: Path, tmp_path: Path, server: dict[str, RemoteFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(omniglot, "ARCHIVES", server)
    config = {"reader": "omniglot", "path": str(tmp_path / "new" / "folder"), "size": 28}
    data = load_dataset(OmniglotData(**config, download=True))  # type: ignore[arg-type]
    assert data.fingerprint() == decode_files(list_omniglot(tree), 28, 1).fingerprint()
    assert data.image_shape == (28, 28, 1)
    again = load_dataset(OmniglotData(**config))  # type: ignore[arg-type]
    assert again.fingerprint() == data.fingerprint()


@pytest.mark.data
def test_the_real_omniglot(real_data: Path) -> None:
    files = list_omniglot(real_data / "omniglot")
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
