"""Reader of image folders: ``path/class/.../image.jpg``, also inside one ``.zip`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reality_check.data.cache._sources import images_below, is_clutter
from reality_check.data.image_files import ImageFiles
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path


def read(config: Any) -> ImageFiles:
    """List the folder that a YAML names."""
    return list_image_folder(config.path)


def list_image_folder(path: str | Path) -> ImageFiles:
    """List a folder that has one sub-folder per class, with images at any depth below it.

    Args:
        path: the folder, or a ``.zip`` file of it, which is not unpacked; ``~`` and ``${VAR}`` are
            expanded.

    Returns:
        The images, sorted by class name and path. The classes are the sub-folders, sorted.

    Raises:
        UsageError: if there is no such folder or a class has no image.
    """
    root = expand_path(path)
    zipped = root.is_file() and root.suffix.lower() == ".zip"
    if not zipped and not root.is_dir():
        raise UsageError(
            f"There is no folder {str(root)!r}; write the path of a folder that has one "
            "sub-folder per class, or of a .zip file of it."
        )
    names = images_below(root)
    start = _shared_folder(names) if zipped else ""
    names = sorted((name[len(start) :] for name in names), key=lambda name: name.split("/"))
    class_names = tuple(dict.fromkeys(name.split("/", 1)[0] for name in names))
    _check_classes(root, class_names)
    label_of = {name: label for label, name in enumerate(class_names)}
    labels = np.array([label_of[name.split("/", 1)[0]] for name in names], np.int64)
    if zipped:
        paths = tuple(f"{root.name}/{start}{name}" for name in names)
        return ImageFiles(root.stem, root.parent, paths, labels, class_names)
    return ImageFiles(root.resolve().name, root, tuple(names), labels, class_names)


def _shared_folder(names: list[str]) -> str:
    """Return the path inside a .zip file to its class folders: ``""``, or ending with a slash."""
    start = ""
    # A class folder contains images. So while every image is at least two folders below ``start``,
    # a folder that all of them are in is above the class folders.
    while names and all(name.count("/", len(start)) > 1 for name in names):
        folder = names[0][len(start) :].split("/", 1)[0] + "/"
        if not all(name.startswith(folder, len(start)) for name in names):
            break
        start += folder
    return start


def _check_classes(root: Path, class_names: tuple[str, ...]) -> None:
    """Raise UsageError if there is no class, or a sub-folder has no image."""
    if not class_names:
        raise UsageError(
            f"{str(root)!r} has no sub-folders with images (JPEG, PNG and all else that Pillow "
            "reads); put the images of each class into a sub-folder of its own."
        )
    empty = sorted(
        entry.name
        for entry in (root.iterdir() if root.is_dir() else ())
        if entry.is_dir()
        and not (entry.name in class_names or is_clutter(entry.name))
        and not any(entry.rglob("experiment.yaml"))  # a folder that this tool wrote
    )
    if empty:
        raise UsageError(
            f"The class folder {str(root / empty[0])!r} holds no image of its own; add "
            "images or remove the folder."
        )
