"""Reader of Omniglot (Lake, Salakhutdinov and Tenenbaum 2015): 1,623 handwritten characters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reality_check.data.cache._sources import images_below
from reality_check.data.image_files import ImageFiles
from reality_check.data.readers.download import RemoteFile
from reality_check.data.readers.download import download as download_file
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path

_PAGE = "https://github.com/brendenlake/omniglot/tree/master/python"
_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"

_ADVICE = (
    "If it is elsewhere, write dataset.path=/my/omniglot; if not, write dataset.download=true and "
    "a dataset.path to put it, or download images_background.zip (9 MB) and images_evaluation.zip "
    f"(6 MB) from {_PAGE} into that folder; they need not be unpacked."
)

#: The two official parts, as their archives are published (checksums: torchvision's).
ARCHIVES = {
    "images_background": RemoteFile(
        "images_background.zip",
        (f"{_URL}/images_background.zip",),
        "md5:68d2efa1b9178cc56df9314c21c6e718",
    ),
    "images_evaluation": RemoteFile(
        "images_evaluation.zip",
        (f"{_URL}/images_evaluation.zip",),
        "md5:6b91aef0f799c5bb55b94e3f2daec811",
    ),
}

#: Characters of each part; every character was drawn by 20 people.
CHARACTERS = {"images_background": 964, "images_evaluation": 659}
DRAWINGS = 20


def list_omniglot(
    path: str | Path, download: bool = False, check_counts: bool = True
) -> ImageFiles:
    """List the images of both parts of Omniglot: 105 x 105, black ink on white.

    Args:
        path: the folder that has ``images_background`` and ``images_evaluation``, each as a folder
            (``ALPHABET/characterNN/*.png``) or as the published ``.zip`` file, which is read as it
            is; or the folder above torchvision's ``omniglot-py``. ``~`` and ``${VAR}`` are
            expanded.
        download: fetch the parts that are missing into ``path``.
        check_counts: refuse all but the published 964 and 659 characters of 20 drawings.

    Returns:
        Classes ``"ALPHABET/characterNN"``, the background's first, each part sorted; the official
        test classes are those of ``images_evaluation``.

    Raises:
        UsageError: a part is missing or is not complete.
    """
    try:
        folder = expand_path(path)
    except UsageError as error:
        raise UsageError(f"{error} {_ADVICE}") from None
    below = folder / "omniglot-py"  # as torchvision lays it out
    folder = below if any(_place(below, part) for part in ARCHIVES) else folder
    paths: list[str] = []
    labels: list[int] = []
    names: list[str] = []
    for part, archive in ARCHIVES.items():
        if _place(folder, part) is None and download:
            download_file(archive, folder)
        characters = _characters(folder, part)
        if check_counts:
            _check_counts(folder, part, characters)
        for name in sorted(characters, key=lambda text: text.split("/")):
            paths += sorted(characters[name])
            labels += [len(names)] * len(characters[name])
            names.append(name)
        if part == "images_background":
            background = len(names)
    test_classes = tuple(range(background, len(names)))
    return ImageFiles(
        "omniglot", folder, tuple(paths), np.array(labels, np.int64), tuple(names), test_classes
    )


def _place(folder: Path, part: str) -> Path | None:
    unpacked, packed = folder / part, folder / f"{part}.zip"
    if unpacked.is_dir():
        return unpacked
    return packed if packed.is_file() else None


def _characters(folder: Path, part: str) -> dict[str, list[str]]:
    """The images of each character of a part, by ``"ALPHABET/characterNN"``."""
    place = _place(folder, part)
    if place is None:
        raise UsageError(f"There is no {part} of Omniglot in {str(folder)!r}. {_ADVICE}")
    characters: dict[str, list[str]] = {}
    for name in images_below(place):
        parts = name.removeprefix(f"{part}/").split("/")
        if len(parts) == 3 and parts[2].lower().endswith(".png"):
            characters.setdefault(f"{parts[0]}/{parts[1]}", []).append(f"{place.name}/{name}")
    if not characters:
        raise UsageError(
            f"{str(place)!r} has no images ALPHABET/characterNN/*.png; fetch it again from {_PAGE}."
        )
    return characters


def _check_counts(folder: Path, part: str, characters: dict[str, list[str]]) -> None:
    incomplete = [name for name, images in characters.items() if len(images) != DRAWINGS]
    if len(characters) != CHARACTERS[part] or incomplete:
        example = f"; {incomplete[0]} has {len(characters[incomplete[0]])}" if incomplete else ""
        raise UsageError(
            f"{part} in {str(folder)!r} has {len(characters)} characters{example}, but "
            f"{CHARACTERS[part]} of {DRAWINGS} drawings each are published; fetch it again from "
            f"{_PAGE}, or write dataset.check_counts=false for a part of it."
        )
