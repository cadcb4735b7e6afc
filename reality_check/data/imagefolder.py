"""Reader of image folders: ``path/class/.../image.jpg``, also inside one ``.zip`` file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from reality_check.data._decode import Resize
from reality_check.data._paths import expand_path
from reality_check.data._sources import zip_members
from reality_check.data.decoded import decode_files
from reality_check.data.image_files import ImageFiles
from reality_check.data.imageset import ImageSet
from reality_check.errors import UsageError

#: File name endings that count as images (any case); all other files are ignored.
EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
)


def read_image_folder(
    path: str | Path,
    size: int,
    channels: Literal[1, 3] = 3,
    on_broken: Literal["error", "skip"] = "error",
    resize: Resize = "short_side",
) -> ImageSet:
    """Read a folder that has one sub-folder per class, with images at any depth below it.

    Args:
        path: the folder, or a ``.zip`` file of it (which is not unpacked); ``~`` and ``${VAR}`` are
            expanded.
        size: short side of the decoded images in pixels.
        channels: 1 (grey) or 3 (RGB); every image is converted.
        on_broken: ``"error"`` or ``"skip"``, see :func:`decode_files`.
        resize: ``"short_side"``, ``"square"`` or ``"none"``, see :func:`decode_files`.

    Returns:
        The images, sorted by class name and path. The classes are the sub-folders, sorted.

    Raises:
        UsageError: if there is no such folder, a class has no image, an image cannot be decoded or
            an option is out of range.
    """
    return decode_files(find_image_folder(path), size, channels, resize, on_broken)


def find_image_folder(path: str | Path) -> ImageFiles:
    """List an image folder, see :func:`read_image_folder`.

    Raises:
        UsageError: if there is no such folder or a class has no image.
    """
    place = expand_path(path)
    if place.is_file() and place.suffix.lower() == ".zip":
        paths, start = _paths_in_zip(place)
        name, root = place.stem, place.parent
    elif place.is_dir():
        paths, start = list(_paths_below(place)), ""
        _check_classes_filled(place, paths)
        name, root = place.resolve().name, place
    else:
        raise UsageError(
            f"There is no folder {str(place)!r}; write the path of a folder that has one "
            "sub-folder per class, or of a .zip file of it."
        )
    paths.sort(key=lambda found: found.split("/"))
    owners = [found[len(start) :].split("/", 1)[0] for found in paths]
    class_names = tuple(sorted(set(owners)))
    if not class_names:
        raise UsageError(
            f"{str(place)!r} has no sub-folders with images ({', '.join(sorted(EXTENSIONS))}); put "
            "the images of each class into a sub-folder of its own."
        )
    rank = {owner: label for label, owner in enumerate(class_names)}
    labels = np.array([rank[owner] for owner in owners], np.int64)
    return ImageFiles(name, root, tuple(paths), labels, class_names)


def _is_image(name: str) -> bool:
    return name[:1] != "." and os.path.splitext(name)[1].lower() in EXTENSIONS


def _paths_below(folder: Path) -> Iterator[str]:
    """Images in the sub-folders, relative to ``folder``; what begins with a dot is hidden."""
    for base, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        below = os.path.relpath(base, folder).replace(os.sep, "/")
        if below != ".":
            yield from (f"{below}/{name}" for name in names if _is_image(name))


def _check_classes_filled(folder: Path, paths: list[str]) -> None:
    filled = {path.split("/", 1)[0] for path in paths}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and entry.name[0] != "." and entry.name not in filled and filled:
            raise UsageError(
                f"The class folder {str(entry)!r} holds no image "
                f"({', '.join(sorted(EXTENSIONS))}); add images or remove the folder."
            )


def _paths_in_zip(file: Path) -> tuple[list[str], str]:
    """Images in a .zip file, and the beginning before the classes that all of them share."""
    found = [name for name in zip_members(file) if _is_visible(name)]
    start = ""
    while found and (shared := _shared_folder([name[len(start) :] for name in found])):
        start += shared
    classes = [name for name in found if "/" in name[len(start) :]]
    return [f"{file.name}/{name}" for name in classes], f"{file.name}/{start}"


def _is_visible(name: str) -> bool:
    parts = name.split("/")
    return (
        _is_image(parts[-1])
        and not any(part[:1] in (".", "") for part in parts[:-1])
        and (parts[0] != "__MACOSX")
    )


def _shared_folder(names: list[str]) -> str:
    """The folder that all images are in, unless it holds them itself: then it is a class."""
    first = {name.split("/", 1)[0] for name in names}
    if len(first) > 1 or not all(name.count("/") >= 2 for name in names):
        return ""
    return first.pop() + "/"
