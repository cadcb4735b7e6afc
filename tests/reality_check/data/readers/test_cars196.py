from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from reality_check.data import ImageFiles, class_splits, load_dataset
from reality_check.data.readers.cars196 import CARS196
from reality_check.utils.errors import UsageError

TRAIN, TEST = [2, 196, 1, 99], [1, 2, 98, 99, 196]
CLASSES = TRAIN + TEST
LABELS = [1, 4, 0, 3, 0, 1, 2, 3, 4]  # of the classes 1, 2, 98, 99, 196
MakeTree = Callable[[Path], Path]


def layouts(trees: ModuleType) -> dict[str, MakeTree]:
    return {
        "original": lambda root: trees.cars_original(root, CLASSES),
        "devkit": lambda root: trees.cars_devkit(root, TRAIN, TEST),
        "by_class": lambda root: trees.cars_by_class(root, TRAIN, TEST),
    }


FIRST_PATHS = {
    "original": "car_ims/000001.jpg",
    "devkit": "cars_train/00001.jpg",
    "by_class": "car_data/car_data/train/Ram C-V Cargo Van Minivan 2012/00001.jpg",
}


@pytest.mark.parametrize("layout", FIRST_PATHS)
def test_the_genuine_layouts(tmp_path: Path, trees: ModuleType, layout: str) -> None:
    root = layouts(trees)[layout](tmp_path / "cars196")
    for path in (root, tmp_path):
        files = CARS196.list_files(path, check_counts=False)
        assert files.name == "cars196"
        assert files.root == root
        assert files.paths[0] == FIRST_PATHS[layout]
        assert files.labels.tolist() == LABELS
        assert files.labels.dtype == np.int64
        assert files.class_names == (
            "AM General Hummer SUV 2000",
            "Ram C/V Cargo Van Minivan 2012",
            "Make Model 98 2012",
            "Make Model 99 2012",
            "Make Model 196 2012",
        )
        assert files.test_classes == (3, 4)


@pytest.mark.parametrize("layout", FIRST_PATHS)
def test_each_image_has_its_own_class(tmp_path: Path, trees: ModuleType, layout: str) -> None:
    root = layouts(trees)[layout](tmp_path)
    keys = {"size": 6, "channels": 3, "resize": "square", "on_broken": "error"}
    data = load_dataset(
        SimpleNamespace(reader="cars196", path=str(root), check_counts=False, **keys)
    )
    levels = data.images.array()[:, 3, 3, 0]
    np.testing.assert_allclose(levels, [trees.level_of(n) for n in range(9)], atol=2)
    assert data.labels.tolist() == LABELS


def test_torchvisions_and_kaggles_variants_of_the_devkit(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cars_devkit(tmp_path, TRAIN, TEST)
    for folder in ("cars_train", "cars_test"):  # packed twice, as on Kaggle
        (root / folder).rename(root / "inner")
        (root / folder).mkdir()
        (root / "inner").rename(root / folder / folder)
    labels = root / "cars_test_annos_withlabels.mat"
    labels.rename(root / "devkit" / labels.name)
    files = CARS196.list_files(root, check_counts=False)
    assert files.labels.tolist() == LABELS
    assert files.paths[4] == "cars_test/cars_test/00001.jpg"
    assert all((root / path).is_file() for path in files.paths)


def test_a_single_image(tmp_path: Path, trees: ModuleType) -> None:
    files = CARS196.list_files(trees.cars_original(tmp_path, [7]), check_counts=False)
    assert (files.labels.tolist(), files.class_names) == ([0], ("Make Model 7 2012",))
    assert files.test_classes is None


def whole(root: Path, trees: ModuleType, sizes: list[int]) -> ImageFiles:
    """The lists of a set with so many images of each class, without the images."""
    for part in ("train", "test"):
        (root / "car_data" / part).mkdir(parents=True)
    trees.lines(root / "names.csv", trees.CAR_NAMES)
    rows = [f"{n}.jpg,1,2,3,4,{c}" for c, size in enumerate(sizes, 1) for n in range(size)]
    trees.lines(root / "anno_train.csv", rows[::2])
    trees.lines(root / "anno_test.csv", rows[1::2])
    return CARS196.list_files(root)


def test_the_published_counts(tmp_path: Path, trees: ModuleType) -> None:
    sizes = [83] * 18 + [82] * 80 + [82] * 3 + [83] * 95  # 8,054 and 8,131
    files = whole(tmp_path / "a", trees, sizes)
    assert len(files) == 16185
    assert files.test_classes == tuple(range(98, 196))
    assert files.test_classes == class_splits(196, 4, "mlrc").test
    with pytest.raises(UsageError, match=r"16,184 images.*but 16,185 images.* are published"):
        whole(tmp_path / "b", trees, [82, *sizes[1:]])
    with pytest.raises(UsageError, match=r"8,130 test images, but 8,131 test images"):
        whole(tmp_path / "c", trees, [84, *sizes[1:-1], 82])


def test_lists_without_classes_are_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cars_devkit(tmp_path, TRAIN, TEST)
    (root / "devkit" / "cars_test_annos.mat").replace(root / "cars_test_annos_withlabels.mat")
    with pytest.raises(UsageError, match=r"have no 'class' \(cars_test_annos\.mat has no classes"):
        CARS196.list_files(root)


@pytest.mark.parametrize("damage", [b"", b"<html>not found</html>", None])
def test_damaged_mat_files_are_refused(
    tmp_path: Path, trees: ModuleType, damage: bytes | None
) -> None:
    root = trees.cars_original(tmp_path, CLASSES)
    file = root / "cars_annos.mat"
    file.write_bytes(file.read_bytes()[:-300] if damage is None else damage)
    with pytest.raises(UsageError, match=r"cars_annos\.mat' cannot be read"):
        CARS196.list_files(root)


def test_another_mat_file_is_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cars_devkit(tmp_path, TRAIN, TEST)
    (root / "devkit" / "cars_train_annos.mat").write_bytes(
        (root / "devkit" / "cars_meta.mat").read_bytes()
    )
    with pytest.raises(UsageError, match=r"cars_train_annos\.mat' cannot be read .*'annotations'"):
        CARS196.list_files(root)


def test_classes_without_a_name_are_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cars_original(tmp_path / "a", [1, 197])
    with pytest.raises(
        UsageError, match=r"of class 197, but there are names for the classes 1\.\.196"
    ):
        CARS196.list_files(root)
    root = trees.cars_by_class(tmp_path / "b", TRAIN, TEST)
    for wrong in ("197", "0", "Audi"):
        (root / "anno_test.csv").write_text(f"00001.jpg,1,2,15,10,{wrong}\r\n")
        with pytest.raises(UsageError, match=rf"Line 1 of .*anno_test\.csv' ends with '{wrong}'"):
            CARS196.list_files(root)


def test_what_the_nearest_layout_lacks_is_named(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.cars_devkit(tmp_path, TRAIN, TEST)
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(UsageError, match=r"lacks cars_test_annos_withlabels\.mat\."):
        CARS196.list_files(root)
    (root / "car_ims").mkdir()  # the layout that is nearest to complete is the one meant
    with pytest.raises(UsageError, match=r"lacks cars_test_annos_withlabels\.mat\."):
        CARS196.list_files(root)


def test_only_the_archives_that_are_needed_are_unpacked(
    tmp_path: Path, trees: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = trees.cars_original(tmp_path / "original", CLASSES)
    devkit = trees.cars_devkit(tmp_path / "devkit", TRAIN, TEST)
    data = tmp_path / "data"
    data.mkdir()
    for root, folder, name in (
        (original, "car_ims", "car_ims"),
        (devkit, "cars_train", "cars_train"),
        (devkit, "devkit", "car_devkit"),
    ):
        with tarfile.open(data / f"{name}.tgz", "w:gz") as file:
            file.add(root / folder, folder)
    (original / "cars_annos.mat").rename(data / "cars_annos.mat")
    monkeypatch.setattr(
        "reality_check.data.readers._published.check_file", lambda path, remote: None
    )
    assert CARS196.list_files(data, check_counts=False).labels.tolist() == LABELS
    assert not (data / "cars_train").exists()


def test_kaggles_archive_is_unpacked_but_not_others_of_its_name(
    tmp_path: Path, trees: ModuleType
) -> None:
    made = trees.cars_by_class(tmp_path / "made", TRAIN, TEST)
    data = tmp_path / "data"
    data.mkdir()
    with zipfile.ZipFile(data / "archive.zip", "w") as file:
        file.writestr("train/letter.txt", "private")
    with pytest.raises(UsageError, match="does not hold Cars196"):
        CARS196.list_files(data)
    assert [path.name for path in data.glob("[!.]*")] == ["archive.zip"]
    with zipfile.ZipFile(data / "archive.zip", "w") as file:
        for path in sorted(made.rglob("*.*")):
            file.write(path, path.relative_to(made))
    files = CARS196.list_files(data, check_counts=False)
    assert files.labels.tolist() == LABELS
    assert all((data / path).is_file() for path in files.paths)
