from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reality_check.data import decode_files, list_image_folder
from reality_check.utils.errors import UsageError


def tree(root: Path, classes: tuple[str, ...] = ("bird", "ant"), count: int = 3) -> Path:
    """PNG images of one grey level each: 10 * class + number."""
    for rank, name in enumerate(sorted(classes)):
        (root / name).mkdir(parents=True)
        for number in range(count):
            level = 10 * rank + number
            Image.new("L", (9 + number, 8), level).save(root / name / f"{number}.png")
    return root


def pack(root: Path, file: Path, start: str = "") -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(root.rglob("*")):
            archive.write(path, start + path.relative_to(root).as_posix())
    return file


def test_classes_are_sorted_and_images_follow_their_paths(tmp_path: Path) -> None:
    data = decode_files(list_image_folder(tree(tmp_path / "pets")), 4, 1)
    assert data.class_names == ("ant", "bird")
    assert data.name == "pets"
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert [data.images.image(row).shape for row in range(3)] == [(4, 4, 1), (4, 5, 1), (4, 5, 1)]
    assert [int(data.images.image(row)[2, 2, 0]) for row in range(6)] == [0, 1, 2, 10, 11, 12]


def test_classes_that_begin_alike_keep_their_images_together(tmp_path: Path) -> None:
    """As plain texts, the paths of "ant" would stand between those of "ant bear" and "ant-2"."""
    files = list_image_folder(tree(tmp_path, ("ant", "ant bear", "ant-2", "Ant"), 2))
    assert files.class_names == ("Ant", "ant", "ant bear", "ant-2")
    assert files.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for path, label in zip(files.paths, files.labels, strict=True):
        assert path.split("/")[0] == files.class_names[label]


def test_other_files_are_ignored_and_sub_folders_read(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "readme.txt").write_text("x")
    Image.new("L", (8, 8), 77).save(root / "cover.png")
    (root / ".hidden").mkdir()
    (root / "ant" / "Thumbs.db").write_bytes(b"x")
    (root / "ant" / "._0.png").write_bytes(b"x")
    (root / "ant" / "deeper").mkdir()
    Image.new("L", (8, 8), 77).save(root / "ant" / "deeper" / "UPPER.BMP")
    with pytest.warns(UserWarning, match=r"\.png outside the sub-folders \(1\)"):
        files = list_image_folder(root)
    assert files.class_names == ("ant", "bird")
    assert files.paths[:4] == ("ant/0.png", "ant/1.png", "ant/2.png", "ant/deeper/UPPER.BMP")
    assert len(files) == 7


@pytest.mark.filterwarnings("ignore:Not read")
def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    """Output is known by its experiment.yaml: a class may be called runs."""
    root = tree(tmp_path, ("ant", "runs"))
    for name in ("lost+found", "@eaDir", "out/first"):
        (root / name).mkdir(parents=True)
    (root / "out" / "first" / "experiment.yaml").write_text("x")
    assert list_image_folder(root).class_names == ("ant", "runs")


@pytest.mark.parametrize("start", ["", "pets/", "images/pets/"])
def test_a_zip_file_is_read_as_its_folder(tmp_path: Path, start: str) -> None:
    root = tree(tmp_path / "pets")
    (root / "readme.txt").write_text("x")
    file = pack(root, tmp_path / "packed.zip", start)
    packed, plain = list_image_folder(file), list_image_folder(root)
    assert packed.name == "packed"
    assert packed.class_names == plain.class_names
    assert packed.paths == tuple(f"packed.zip/{start}{path}" for path in plain.paths)
    np.testing.assert_array_equal(packed.labels, plain.labels)
    decoded = decode_files(packed, 4, resize="square")
    assert decoded.fingerprint() == decode_files(plain, 4, resize="square").fingerprint()
    assert sorted(os.listdir(tmp_path)) == ["packed.zip", "pets"]  # nothing is unpacked


def test_a_zip_file_with_one_class(tmp_path: Path) -> None:
    file = pack(tree(tmp_path / "pets", ("ant",)), tmp_path / "packed.zip")
    assert list_image_folder(file).class_names == ("ant",)


def test_refuses_what_has_no_classes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no folder.*or of a \.zip"):
        list_image_folder(tmp_path / "absent")
    (tmp_path / "file.tar").write_text("x")
    with pytest.raises(UsageError, match="There is no folder"):
        list_image_folder(tmp_path / "file.tar")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no sub-folders with images"):
        list_image_folder(tmp_path / "empty")
    (tmp_path / "flat").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "flat" / "x.png")
    with pytest.raises(UsageError, match="no sub-folders with images"):
        list_image_folder(tmp_path / "flat")
    with pytest.raises(UsageError, match=r"flat\.zip' has no sub-folders with images"):
        list_image_folder(pack(tmp_path / "flat", tmp_path / "flat.zip"))
    root = tree(tmp_path / "full")
    (root / "cat").mkdir()
    (root / "cat" / "notes.txt").write_text("x")
    with (
        pytest.raises(UsageError, match="cat' holds no image"),
        pytest.warns(UserWarning, match=r"\.txt \(1\)"),
    ):
        list_image_folder(root)


@pytest.mark.data
def test_caltech(real_data: Path) -> None:
    data = decode_files(list_image_folder(real_data / "caltech101" / "images_64.zip"), 64)
    assert (data.num_classes, len(data), data.image_shape) == (99, 5815, (64, 64, 3))
    assert data.class_names[0] == "000_accordion"
    counts = np.bincount(data.labels)
    assert (counts.min(), counts.max()) == (31, 80)
    with np.load(real_data / "caltech101" / "caltech101_32.npz") as peer:
        np.testing.assert_array_equal(peer["labels"], data.labels)
        halves = data.images.array().reshape(5815, 32, 2, 32, 2, 3).mean(axis=(2, 4))
        # The same pictures, made smaller before they were saved as JPEG.
        assert np.abs(halves - peer["images"]).mean() < 4
