from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from reality_check.data import load_dataset
from reality_check.data.readers.in_shop import IN_SHOP
from reality_check.utils.errors import UsageError

LABELS = [1, 1, 0, 0, 0, 2, 3, 3]  # of the items 1, 2, 80, 390
QUERIES = [False, False, True, False, False, False, False, True]


def test_the_genuine_layout(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.in_shop(tmp_path / "In-shop Clothes Retrieval Benchmark")
    for path in (root, tmp_path):
        files = IN_SHOP.list_files(path, check_counts=False)
        assert files.name == "in_shop"
        assert files.root == root
        assert files.paths[0] == "Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg"
        assert files.labels.tolist() == LABELS
        assert files.class_names == (
            "WOMEN Blouses_Shirts id_00000001",
            "WOMEN Dresses id_00000002",
            "MEN Denim id_00000080",
            "MEN Tees_Tanks id_00000390",
        )
        assert files.test_classes == (0, 3)
        assert files.queries is not None
        assert files.queries.dtype == bool
        assert files.queries.tolist() == QUERIES


def config(root: Path, **keys: object) -> SimpleNamespace:
    defaults = {"size": 6, "channels": 3, "resize": "short_side", "on_broken": "error"}
    own = {"reader": "in_shop", "path": str(root), "check_counts": False}
    return SimpleNamespace(**{**defaults, **own, **keys})


def test_queries_follow_their_images(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.in_shop(tmp_path)
    data = load_dataset(config(root))
    levels = data.images.array()[:, 3, 3, 0]
    np.testing.assert_allclose(levels, [trees.level_of(n) for n in range(8)], atol=2)
    assert data.queries is not None
    assert data.queries.tolist() == QUERIES
    assert data.test_classes == (0, 3)


@pytest.mark.parametrize(
    ("partition", "images"),
    [
        ("list_eval_partition.txt", "img"),
        ("Anno/list_eval_partition.txt", "Img/img"),
        ("list_eval_partition.txt", "img_highres"),
        ("Eval/list_eval_partition.txt", "Img/img_highres"),
    ],
)
def test_other_places_of_the_same_files(
    tmp_path: Path, trees: ModuleType, partition: str, images: str
) -> None:
    made = trees.in_shop(tmp_path / "made")
    root = tmp_path / "moved"
    (root / partition).parent.mkdir(parents=True, exist_ok=True)
    (root / images).parent.mkdir(parents=True, exist_ok=True)
    (made / "Eval" / "list_eval_partition.txt").rename(root / partition)
    (made / "Img" / "img").rename(root / images)
    files = IN_SHOP.list_files(root, check_counts=False)
    assert all((root / path).is_file() for path in files.paths)
    assert files.labels.tolist() == LABELS
    assert files.class_names[2] == "MEN Denim id_00000080"


def test_the_small_images_win(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.in_shop(tmp_path)
    (root / "Img" / "img_highres").mkdir()
    assert IN_SHOP.list_files(root, check_counts=False).paths[0].startswith("Img/img/")


def whole_list(root: Path, trees: ModuleType, train: int, query: int, gallery: int) -> Path:
    """3,997 training and 3,985 test items with so many images."""
    (root / "Img" / "img").mkdir(parents=True)
    rows = []
    for part, count, first, items in (
        ("train", train, 0, 3997),
        ("query", query, 3997, 3985),
        ("gallery", gallery, 3997, 3985),
    ):
        for number in range(count):
            item = f"id_{first + number % items + 1:08d}"
            rows.append((f"img/MEN/Denim/{item}/{part}_{number}.jpg", item, part))
    trees.in_shop_list(root / "Eval" / "list_eval_partition.txt", rows)
    return root


def test_the_published_counts(tmp_path: Path, trees: ModuleType) -> None:
    files = IN_SHOP.list_files(whole_list(tmp_path / "a", trees, 25882, 14218, 12612))
    assert (len(files), len(files.class_names)) == (52712, 7982)
    assert files.test_classes is not None
    assert len(files.test_classes) == 3985
    assert files.queries is not None
    assert files.queries.sum() == 14218
    with pytest.raises(UsageError) as error:
        IN_SHOP.list_files(whole_list(tmp_path / "b", trees, 25882, 14217, 12613))
    assert "14,217 query images, 12,613 gallery images, but 14,218 query" in str(error.value)


def test_the_list_of_another_benchmark_is_refused(tmp_path: Path, trees: ModuleType) -> None:
    root = trees.in_shop(tmp_path)
    file = root / "Eval" / "list_eval_partition.txt"
    file.write_text("000001.jpg 0\n000002.jpg 0\n000003.jpg 1\n")  # CelebA's, of the same name
    with pytest.raises(UsageError, match="is not In-Shop's list"):
        IN_SHOP.list_files(root)
    text = "2\nimage_name item_id evaluation_status\nimg/a/id_1/b.jpg id_1 val\n"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"Line 3 of .* ends with 'val', but it must be train"):
        IN_SHOP.list_files(root)
    file.write_text(text.replace(" id_1 val", ""))
    with pytest.raises(UsageError, match=r"Line 3 of .* must hold image_name, item_id"):
        IN_SHOP.list_files(root)


def test_paths_with_blanks_and_items_in_two_folders(tmp_path: Path, trees: ModuleType) -> None:
    rows = [
        ("img/WOMEN/Tees and Tanks/id_00000007/a b.jpg", "id_00000007", "query"),
        ("img/WOMEN/Shorts/id_00000007/c.jpg", "id_00000007", "gallery"),
    ]
    root = trees.in_shop(tmp_path)
    trees.in_shop_list(root / "Eval" / "list_eval_partition.txt", rows)
    files = IN_SHOP.list_files(root, check_counts=False)
    assert files.paths[0] == "Img/img/WOMEN/Tees and Tanks/id_00000007/a b.jpg"
    assert files.class_names == ("WOMEN Tees and Tanks id_00000007",)


def test_an_item_in_both_parts_is_refused(tmp_path: Path, trees: ModuleType) -> None:
    rows = [("img/a/id_1/1.jpg", "id_1", "train"), ("img/a/id_1/2.jpg", "id_1", "gallery")]
    root = trees.in_shop(tmp_path)
    trees.in_shop_list(root / "Eval" / "list_eval_partition.txt", rows)
    with pytest.raises(UsageError, match=r"'id_1' .* samples in the test and others"):
        IN_SHOP.list_files(root)


def test_its_archive_is_unpacked_where_it_lies(tmp_path: Path, trees: ModuleType) -> None:
    made = trees.in_shop(tmp_path / "made")
    root = tmp_path / "data"
    (root / "Img").mkdir(parents=True)
    (made / "Eval").rename(root / "Eval")
    with zipfile.ZipFile(root / "Img" / "img.zip", "w") as archive:
        for file in sorted((made / "Img").rglob("*.jpg")):
            archive.write(file, file.relative_to(made / "Img"))
    files = IN_SHOP.list_files(root, check_counts=False)
    assert all((root / path).is_file() for path in files.paths)
