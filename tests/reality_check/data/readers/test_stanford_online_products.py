from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from reality_check.data import class_splits, load_dataset
from reality_check.data.readers.stanford_online_products import ONLINE_PRODUCTS
from reality_check.utils.errors import UsageError


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_genuine_layout(tmp_path: Path, trees: ModuleType, end: str) -> None:
    root = trees.online_products(tmp_path / "Stanford_Online_Products", end)
    (root / "Ebay_info.txt").unlink()  # says nothing that the other two do not
    for path in (root, tmp_path):
        files = ONLINE_PRODUCTS.list_files(path, check_counts=False)
        assert files.name == "stanford_online_products"
        assert files.paths[:2] == ("bicycle_final/11108513_0.JPG", "bicycle_final/11108513_1.JPG")
        assert files.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert files.class_names == (
            "bicycle 1",
            "bicycle 2",
            "coffee maker 11318",
            "chair 11319",
            "toaster 22634",
        )
        assert files.test_classes == (3, 4)
        assert files.queries is None


def test_images_and_labels_belong_together(tmp_path: Path, trees: ModuleType) -> None:
    keys = {"size": 6, "channels": 3, "resize": "short_side", "on_broken": "error"}
    root = trees.online_products(tmp_path)
    config = SimpleNamespace(
        reader="stanford_online_products", path=root, download=False, check_counts=False, **keys
    )
    data = load_dataset(config)
    levels = data.images.array()[:, 3, 3, 0]
    np.testing.assert_allclose(levels, [trees.level_of(n) for n in range(10)], atol=2)


def whole_lists(root: Path, trees: ModuleType, train: list[int], test: list[int]) -> Path:
    header = ["image_id class_id super_class_id path"]
    number = label = 0
    for part, sizes in (("train", train), ("test", test)):
        rows = []
        for size in sizes:
            label += 1
            for view in range(size):
                number += 1
                rows.append(f"{number} {label} 1 bicycle_final/{label}_{view}.JPG")
        trees.lines(root / f"Ebay_{part}.txt", header + rows)
    return root


#: 59,551 images of 11,318 classes, the last with 5, and 60,502 of 11,316: protocol.md, section 1.
TRAIN = [5] * (11317 - 2961) + [6] * 2961 + [5]
TEST = [5] * (11316 - 3922) + [6] * 3922


def test_the_published_counts_and_the_class_between_both_splits(
    tmp_path: Path, trees: ModuleType
) -> None:
    assert (sum(TRAIN), sum(TEST)) == (59551, 60502)
    files = ONLINE_PRODUCTS.list_files(whole_lists(tmp_path / "a", trees, TRAIN, TEST))
    assert (len(files), len(files.class_names)) == (120053, 22634)
    official = files.test_classes
    half = class_splits(22634, 4, "mlrc").test
    assert official == tuple(range(11318, 22634))
    assert set(half) - set(official) == {11317}
    assert np.isin(files.labels, half).sum() == 60507
    assert files.class_names[11317] == "bicycle 11318"
    with pytest.raises(UsageError, match=r"120,052 images, but 120,053 images are published"):
        ONLINE_PRODUCTS.list_files(whole_lists(tmp_path / "b", trees, [4, *TRAIN[1:]], TEST))
    shifted = whole_lists(tmp_path / "c", trees, [*TRAIN, TEST[0]], TEST[1:])
    with pytest.raises(UsageError, match=r"11,315 test classes, 60,497 test images, but 11,316"):
        ONLINE_PRODUCTS.list_files(shifted)


def test_a_class_in_both_lists_is_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.online_products(tmp_path)
    text = (root / "Ebay_test.txt").read_text()
    (root / "Ebay_test.txt").write_text(text.replace("7 11319 ", "7 2 "))
    with pytest.raises(UsageError, match=r"class '2' .* samples in the test and others"):
        ONLINE_PRODUCTS.list_files(root)


def test_paths_with_blanks(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.online_products(tmp_path)
    text = (root / "Ebay_test.txt").read_text()
    (root / "Ebay_test.txt").write_text(text.replace("11119831_0", "my new  chair"))
    files = ONLINE_PRODUCTS.list_files(root, check_counts=False)
    assert files.paths[6] == "chair_final/my new  chair.JPG"
