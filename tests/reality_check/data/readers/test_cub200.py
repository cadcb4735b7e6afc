from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from reality_check.data import class_splits, load_dataset
from reality_check.data.readers.cub200 import CUB200
from reality_check.utils.errors import UsageError


def config(path: Path, **keys: object) -> SimpleNamespace:
    defaults = {"size": 6, "channels": 3, "resize": "short_side", "on_broken": "error"}
    own = {"reader": "cub200", "path": str(path), "download": False, "check_counts": False}
    return SimpleNamespace(**{**defaults, **own, **keys})


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_genuine_layout(tmp_path: Path, trees: ModuleType, end: str) -> None:
    root = trees.cub200(tmp_path / "CUB_200_2011", end)
    files = CUB200.list_files(root, check_counts=False)
    assert files.name == "cub200"
    assert files.root == root
    assert files.paths[:2] == (
        "images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg",
        "images/001.Black_footed_Albatross/Black Footed Albatross ü 9.jpg",
    )
    assert files.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert files.labels.dtype == np.int64
    assert files.class_names == (
        "Black footed Albatross",
        "Laysan Albatross",
        "White Pelican",
        "Common Yellowthroat",
    )
    assert files.test_classes == (2, 3)
    assert files.queries is None


def test_images_of_every_mode_are_decoded(tmp_path: Path, trees: ModuleType) -> None:
    data = load_dataset(config(trees.cub200(tmp_path)))
    assert data.images.shape == (6, 8, 3)
    found = [data.images.image(row)[3, 4] for row in range(8)]
    expected = [[trees.level_of(row)] * 3 for row in range(8)]
    np.testing.assert_allclose(found, expected, atol=2)
    assert data.test_classes == (2, 3)


def test_the_order_of_the_list_does_not_change_labels(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cub200(tmp_path)
    for name in ("images.txt", "image_class_labels.txt"):
        reversed_lines = (root / name).read_text(encoding="utf-8").splitlines()[::-1]
        marked = "\ufeff" + "\n\n".join(reversed_lines)  # a byte order mark, and empty lines
        (root / name).write_text(marked, encoding="utf-8")
    files = CUB200.list_files(root, check_counts=False)
    assert files.labels.tolist() == [3, 3, 2, 2, 1, 1, 0, 0]
    assert files.paths[-1].endswith("0046_18.jpg")


def whole_lists(root: Path, trees: ModuleType, sizes: Sequence[int]) -> Path:
    """The lists of a set with so many images of each class, without the images."""
    (root / "images").mkdir(parents=True)
    images = [(label, n) for label, size in enumerate(sizes, 1) for n in range(size)]
    trees.lines(root / "images.txt", (f"{i} {c}/{n}.jpg" for i, (c, n) in enumerate(images)))
    trees.lines(root / "image_class_labels.txt", (f"{i} {c}" for i, (c, _) in enumerate(images)))
    trees.lines(root / "classes.txt", (f"{c} {c:03d}.Bird_{c}" for c in range(1, len(sizes) + 1)))
    return root


#: 5,864 images of the first 100 classes and 5,924 of the others: protocol.md, section 1.
SIZES = [58] * 36 + [59] * 64 + [59] * 76 + [60] * 24


def test_the_published_counts(tmp_path: Path, trees: ModuleType) -> None:
    files = CUB200.list_files(whole_lists(tmp_path / "a", trees, SIZES))
    assert len(files) == 11788
    assert files.test_classes == tuple(range(100, 200))
    assert files.test_classes == class_splits(200, 4, "mlrc").test
    short = whole_lists(tmp_path / "b", trees, [57, *SIZES[1:]])
    with pytest.raises(UsageError, match=r"11,787 images, but 11,788 images are published.*false"):
        CUB200.list_files(short)
    assert len(CUB200.list_files(short, check_counts=False)) == 11787
    moved = [57, *SIZES[1:-1], 61]
    with pytest.raises(UsageError, match=r"5,925 test images, but 5,924 test images"):
        CUB200.list_files(whole_lists(tmp_path / "c", trees, moved))
    with pytest.raises(UsageError, match=r"199 classes, .*, but 200 classes"):
        CUB200.list_files(whole_lists(tmp_path / "d", trees, SIZES[:-1]))


@pytest.mark.parametrize(
    ("file", "old", "new", "text"),
    [
        ("images.txt", "3 002", "x 002", r"Line 3 of .*images\.txt' has 'x' where a whole number"),
        ("images.txt", "3 002", "2 002", r"Line 3 of .*images\.txt' has the image_id 2 again"),
        ("images.txt", "3 002", "33 002", r"lists image 33, which has no class"),
        ("image_class_labels.txt", "3 2\n", "3\n", r"Line 3 .* is '3', but it must hold image_id"),
        (
            "image_class_labels.txt",
            "3 2\n",
            "3 7\n",
            r"classes\.txt' lacks class 7",
        ),
        ("classes.txt", "2 002.Laysan_Albatross\n", "", r"classes\.txt' lacks class 2"),
    ],
)
def test_damaged_lists_are_refused(
    tmp_path: Path, trees: ModuleType, file: str, old: str, new: str, text: str
) -> None:
    root = trees.cub200(tmp_path)
    content = (root / file).read_text(encoding="utf-8")
    assert old in content
    (root / file).write_text(content.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError, match=text):
        CUB200.list_files(root, check_counts=False)


def test_an_empty_list_is_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cub200(tmp_path)
    (root / "images.txt").write_bytes(b"\r\n")
    with pytest.raises(UsageError, match="name no image"):
        CUB200.list_files(root, check_counts=False)


def test_names_that_are_not_utf8_are_found(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cub200(tmp_path)
    old = root / "images" / "101.White_Pelican" / "White_Pelican_0001_97604.jpg"
    new = old.with_name("White_Pelican_\udce9.jpg")  # Latin-1's é
    try:
        old.rename(new)
    except (OSError, UnicodeError):
        pytest.skip("this file system takes names in UTF-8 only")
    text = (root / "images.txt").read_bytes()
    (root / "images.txt").write_bytes(
        text.replace(b"White_Pelican_0001_97604", b"White_Pelican_\xe9")
    )
    assert len(load_dataset(config(root))) == 8
