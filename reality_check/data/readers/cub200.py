"""CUB-200-2011 (Wah et al. 2011) from its genuine files."""

from __future__ import annotations

from pathlib import Path

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._lists import Line, assemble, read_lines
from reality_check.data.readers._published import PublishedDataset
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

_FIRST_TEST_CLASS = 101


def _list_root(root: Path) -> ImageFiles:
    """List the images; ``assemble`` turns the official class numbers, 1 to 200, into labels."""
    class_lines = _read_pairs(root / "classes.txt", "class_id", "class_name")
    label_lines = _read_pairs(root / "image_class_labels.txt", "image_id", "class_id")
    image_lines = _read_pairs(root / "images.txt", "image_id", "image_name")
    class_ids = [_class_of(line, label_lines) for line in image_lines.values()]
    for number in set(class_ids) - set(class_lines):  # raises for the first, if there is any
        raise UsageError(
            f"{str(root / 'classes.txt')!r} lacks class {number}, which some images have; restore "
            "the file."
        )
    return assemble(
        "cub200",
        root,
        [f"images/{line.fields[1]}" for line in image_lines.values()],
        class_ids,
        lambda number: _readable(class_lines[number].fields[1]),
        is_test=[number >= _FIRST_TEST_CLASS for number in class_ids],
    )


def _read_pairs(file: Path, key: str, value: str) -> dict[int, Line]:
    """Return the lines of a list by the number in their first field."""
    lines: dict[int, Line] = {}
    for line in read_lines(file, (key, value)):
        if lines.setdefault(line.integer(0), line) is not line:
            raise UsageError(f"{line.location()} has the {key} {line.fields[0]} again; restore it.")
    return lines


def _class_of(image: Line, label_lines: dict[int, Line]) -> int:
    """Return the class number of an image; ``label_lines`` maps image numbers to lines."""
    if image.integer(0) not in label_lines:
        raise UsageError(
            f"{image.location()} lists image {image.fields[0]}, which has no class in "
            "image_class_labels.txt; restore both files."
        )
    return label_lines[image.integer(0)].integer(1)


def _readable(text: str) -> str:
    """Return a name such as ``001.Black_footed_Albatross`` without its number and underscores."""
    number, dot, name = text.partition(".")
    return (name if dot and number.isdigit() else text).replace("_", " ")


CUB200 = PublishedDataset(
    title="CUB-200-2011",
    experiment="cub200_mlrc",
    folder="CUB_200_2011",
    layouts=(("images.txt", "image_class_labels.txt", "classes.txt", "images"),),
    archives=(
        RemoteFile(
            "CUB_200_2011.tgz",
            ("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",),
            "md5:97eceeb196236b17998738112f37df78",
        ),
    ),
    source="CUB_200_2011.tgz (1.2 GB) from https://data.caltech.edu/records/65de6-vp158",
    counts={"classes": 200, "images": 11_788, "test images": 5_924},
    list_root=_list_root,
)
read = CUB200.read
