"""Stanford Online Products (Oh Song et al. 2016) from its genuine files."""

from __future__ import annotations

from pathlib import Path

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._lists import assemble, read_lines
from reality_check.data.readers._published import PublishedDataset
from reality_check.utils.download import RemoteFile

_FIELDS = ("image_id", "class_id", "super_class_id", "path")


def _list_root(root: Path) -> ImageFiles:
    """List the images; ``assemble`` turns the official class numbers, 1 to 22634, into labels.

    The 11,316 classes of ``Ebay_test.txt`` are the test classes. Half of the sorted classes would
    be 11,317, with class 11,318 and its 5 images (see docs/datasets.md).
    """
    paths: list[str] = []
    class_ids: dict[str, list[int]] = {"train": [], "test": []}
    category_of: dict[int, str] = {}
    for part, ids in class_ids.items():
        for line in read_lines(root / f"Ebay_{part}.txt", _FIELDS, skip=1):
            paths.append(line.fields[3])
            ids.append(line.integer(1))
            folder = paths[-1].partition("/")[0]  # such as coffee_maker_final
            category_of.setdefault(ids[-1], folder.removesuffix("_final").replace("_", " "))
    return assemble(
        "stanford_online_products",
        root,
        paths,
        class_ids["train"] + class_ids["test"],
        lambda number: f"{category_of[number]} {number}",
        is_test=[part == "test" for part, ids in class_ids.items() for _ in ids],
    )


ONLINE_PRODUCTS = PublishedDataset(
    title="Stanford Online Products",
    experiment="sop_mlrc",
    folder="Stanford_Online_Products",
    layouts=(("Ebay_train.txt", "Ebay_test.txt"),),
    archives=(
        RemoteFile(
            "Stanford_Online_Products.zip",
            (
                "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                "https://drive.usercontent.google.com/download?id=1TclrpQOF_ullUP99wk_gjGN8pKvtErG8"
                "&export=download&confirm=t",
            ),
            "md5:7f73d41a2f44250d4779881525aea32e",
        ),
    ),
    source=(
        "Stanford_Online_Products.zip (3 GB) from https://cvgl.stanford.edu/projects/lifted_struct/"
    ),
    counts={"classes": 22_634, "images": 120_053, "test classes": 11_316, "test images": 60_502},
    list_root=_list_root,
)
read = ONLINE_PRODUCTS.read
