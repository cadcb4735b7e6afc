"""In-Shop Clothes Retrieval (Liu et al. 2016, DeepFashion) from its genuine files."""

from __future__ import annotations

from pathlib import Path

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._lists import Line, assemble, read_lines
from reality_check.data.readers._published import PublishedDataset, first_existing
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

_PARTITION = "Eval/list_eval_partition.txt|list_eval_partition.txt|Anno/list_eval_partition.txt"
#: The high-resolution images are used only if there are no others.
_IMAGES = "Img/img|img|Img/img_highres|img_highres"
_FIELDS = ("image_name", "item_id", "evaluation_status")
_PARTS = ("train", "query", "gallery")


def _list_root(root: Path) -> ImageFiles:
    """List the images; the items of the query and gallery images are the test classes."""
    partition = root / str(first_existing(root, _PARTITION))
    images = str(first_existing(root, _IMAGES))
    lines = list(read_lines(partition, _FIELDS, spaced=0, skip=_header_lines(partition)))
    parts = list(map(_part, lines))
    items = [line.fields[1] for line in lines]
    listed = [line.fields[0] for line in lines]
    # In reverse, so that of an item's images the first one is kept.
    first_image = dict(zip(reversed(items), reversed(listed), strict=True))
    return assemble(
        "in_shop",
        root,
        [f"{images}/{path.removeprefix('img/')}" for path in listed],
        items,
        # A name is the folders of the item's first image and the id: WOMEN Dresses id_00000002.
        lambda item: " ".join([*first_image[item].split("/")[1:-2], item]),
        is_test=[part != "train" for part in parts],
        queries=[part == "query" for part in parts],
    )


def _header_lines(partition: Path) -> int:
    """Return the number of lines up to and including the one with the names of the columns."""
    for line in read_lines(partition, ("header",)):
        if line.fields[0].split() == list(_FIELDS):
            return line.number
        if line.number > 2:
            break
    raise UsageError(
        f"{str(partition)!r} is not In-Shop's list: no line among its first says "
        f"{' '.join(_FIELDS)!r}; take the one from the In-shop benchmark."
    )


def _part(line: Line) -> str:
    """Return the part, train, query or gallery, that a line puts its image in."""
    if line.fields[2] not in _PARTS:
        raise UsageError(
            f"{line.location()} ends with {line.fields[2]!r}, but it must be train, query or "
            "gallery; take the file from the In-shop benchmark."
        )
    return line.fields[2]


IN_SHOP = PublishedDataset(
    title="In-Shop Clothes Retrieval",
    experiment="in_shop_mlrc",
    folder="In-shop",
    layouts=((_PARTITION, _IMAGES),),
    archives=tuple(
        map(RemoteFile, ("Img/img.zip", "img.zip", "Img/img_highres.zip", "img_highres.zip"))
    ),
    source=(
        "Img/img.zip and Eval/list_eval_partition.txt of the In-shop benchmark from "
        "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html (a Google Drive "
        "folder, to be downloaded in a browser)"
    ),
    counts={
        "classes": 7_982,
        "images": 52_712,
        "training images": 25_882,
        "query images": 14_218,
        "gallery images": 12_612,
    },
    list_root=_list_root,
)
read = IN_SHOP.read
