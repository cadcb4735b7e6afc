"""Stanford Online Products from its genuine files."""

from __future__ import annotations

from pathlib import Path

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._lists import assemble, read_lines
from reality_check.data.readers._published import PublishedDataset, compare_counts, locate
from reality_check.data.readers.download import RemoteFile
from reality_check.utils.errors import UsageError

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
)
_FIELDS = ("image_id", "class_id", "super_class_id", "path")


def list_online_products(
    path: str | Path, download: bool = False, check_counts: bool = True
) -> ImageFiles:
    """List the images of Stanford Online Products (Oh Song et al. 2016).

    Args:
        path: folder ``Stanford_Online_Products`` with ``Ebay_train.txt``, ``Ebay_test.txt`` and the
            images, or its parent; an unopened ``Stanford_Online_Products.zip`` there is unpacked.
            ``~`` and ``${VAR}`` are expanded.
        download: fetch the archive into ``path`` where the data set is not there.
        check_counts: refuse all but 22,634 classes and 120,053 images.

    Returns:
        The images in the order of the two lists. Labels are the official classes 1..22634 less 1;
        the 11,316 classes of ``Ebay_test.txt`` are the test classes. Half of the sorted classes,
        11,317, is one more: class 11,318 with its 5 images (see docs/datasets.md).

    Raises:
        UsageError: the data set is not there, incomplete, or its lists are damaged.
    """
    root = locate(path, ONLINE_PRODUCTS, download)
    paths: list[str] = []
    classes: dict[str, list[int]] = {"train": [], "test": []}
    category: dict[int, str] = {}
    for part, labels in classes.items():
        for line in read_lines(root / f"Ebay_{part}.txt", _FIELDS, skip=1):
            paths.append(line.fields[3])
            labels.append(line.integer(1))
            folder = paths[-1].partition("/")[0]  # such as coffee_maker_final
            category.setdefault(labels[-1], folder.removesuffix("_final").replace("_", " "))
    both = set(classes["train"]) & set(classes["test"])
    if both:
        raise UsageError(
            f"Class {min(both)} is in Ebay_train.txt and in Ebay_test.txt of {str(root)!r}; "
            "restore both from the archive."
        )
    files = assemble(
        "stanford_online_products",
        root,
        paths,
        classes["train"] + classes["test"],
        lambda number: f"{category[number]} {number}",
        test_ids=set(classes["test"]),
    )
    if check_counts:
        compare_counts(files, ONLINE_PRODUCTS)
    return files
