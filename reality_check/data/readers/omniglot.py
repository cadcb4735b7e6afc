"""Omniglot (Lake, Salakhutdinov and Tenenbaum 2015): 1,623 characters, each drawn by 20 people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reality_check.data.cache._sources import images_below
from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._published import PublishedDataset, first_existing
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

_PAGE = "https://github.com/brendenlake/omniglot/tree/master/python"
_URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
#: The two official parts, each as a folder or as the published archive.
_PARTS = tuple(f"{part}|{part}.zip" for part in ("images_background", "images_evaluation"))


def _list_root(root: Path) -> ImageFiles:
    """List the images of both parts: 105 x 105, black ink on white.

    Classes are named ``"ALPHABET/characterNN"``. The sorted classes of ``images_background`` come
    first, then the sorted classes of ``images_evaluation``, which are the test classes.
    """
    # For each part, from its characters to their images.
    parts = [_images_by_character(root, str(first_existing(root, part))) for part in _PARTS]
    names = [name for part in parts for name in sorted(part, key=lambda text: text.split("/"))]
    images = [sorted((parts[0] | parts[1])[name]) for name in names]
    return ImageFiles(
        "omniglot",
        root,
        tuple(path for paths in images for path in paths),
        np.repeat(np.arange(len(names)), list(map(len, images))),
        tuple(names),
        test_classes=tuple(range(len(parts[0]), len(names))),
    )


def _images_by_character(root: Path, part: str) -> dict[str, list[str]]:
    """Return the images of each character of a part, by its class name."""
    characters: dict[str, list[str]] = {}
    for name in images_below(root / part):
        # In an archive, the images are in a folder of the part's name.
        folders = name.removeprefix(f"{part.removesuffix('.zip')}/").split("/")
        if len(folders) == 3 and folders[2].lower().endswith(".png"):
            characters.setdefault("/".join(folders[:2]), []).append(f"{part}/{name}")
    if not characters:
        raise UsageError(
            f"{str(root / part)!r} has no images ALPHABET/characterNN/*.png; fetch it again from "
            f"{_PAGE}."
        )
    return characters


#: The checksums are torchvision's.
OMNIGLOT = PublishedDataset(
    title="Omniglot",
    experiment="omniglot_official",
    folder="omniglot",
    layouts=(_PARTS,),
    archives=(
        RemoteFile(
            "images_background.zip",
            (f"{_URL}/images_background.zip",),
            "md5:68d2efa1b9178cc56df9314c21c6e718",
        ),
        RemoteFile(
            "images_evaluation.zip",
            (f"{_URL}/images_evaluation.zip",),
            "md5:6b91aef0f799c5bb55b94e3f2daec811",
        ),
    ),
    source=f"images_background.zip (9 MB) and images_evaluation.zip (6 MB) from {_PAGE}",
    counts={"classes": 1_623, "images": 32_460, "test classes": 659, "test images": 13_180},
    list_root=_list_root,
    stays_packed=True,
)
read = OMNIGLOT.read
