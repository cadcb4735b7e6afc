"""Reader of image folders: ``path/class/.../image.jpg``, decoded once and memory-mapped after."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from reality_check.data._decode import decode_image
from reality_check.data._paths import cache_folder, expand_path
from reality_check.data.imageset import ImageSet
from reality_check.errors import UsageError

#: File name endings that count as images (any case); all other files are ignored.
EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff", ".webp")
)

_FORMAT = 1  # part of the cache's key: raise it when the decoded pixels change
_CHUNK = 512  # images decoded before they are written


@dataclass(frozen=True)
class _File:
    path: Path
    label: int


def read_image_folder(
    path: str | Path,
    size: int,
    channels: Literal[1, 3] = 3,
    on_broken: Literal["error", "skip"] = "error",
) -> ImageSet:
    """Read a folder that has one sub-folder per class, with images at any depth below it.

    The short side of every image is resized to ``size`` and the centre is cut out. The decoded
    images are kept in the cache folder and opened memory-mapped from then on; a file added,
    removed or changed (by size or time) makes the reader decode again. The orientation that a
    camera stores beside the pixels is ignored, as the field's readers do.

    Args:
        path: the folder; ``~`` and ``${VAR}`` are expanded.
        size: side of the square images in pixels.
        channels: 1 (grey) or 3 (RGB); every image is converted.
        on_broken: what to do with an image that cannot be decoded: ``"error"`` names it,
            ``"skip"`` leaves it out with a warning.

    Returns:
        The images, sorted by class name and path. The classes are the sub-folders, sorted.

    Raises:
        UsageError: if there is no such folder, a class has no image, an image cannot be decoded or
            an option is out of range.
    """
    folder = expand_path(path)
    _check_options(size, channels, on_broken)
    names, files = _find_files(folder)
    entry = cache_folder() / f"folder-{_key(folder, files, size, channels, on_broken)}"
    if not _is_complete(entry):
        _decode_into(entry, names, files, size, channels, on_broken)
    return _open(entry, names, folder)


def _check_options(size: int, channels: int, on_broken: str) -> None:
    if size < 1:
        raise UsageError(f"size={size}, but images need at least 1 pixel; write size: 256.")
    if channels not in (1, 3):
        raise UsageError(f"channels={channels}, but it must be 1 (grey) or 3 (RGB).")
    if on_broken not in ("error", "skip"):
        raise UsageError(f"on_broken={on_broken!r}, but it must be 'error' or 'skip'.")


def _find_files(folder: Path) -> tuple[tuple[str, ...], list[_File]]:
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {str(folder)!r}; write the path of a folder that has one "
            "sub-folder per class."
        )
    classes = sorted(
        entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."
    )
    if not classes:
        raise UsageError(
            f"The folder {str(folder)!r} has no sub-folders; put the images of each class into a "
            "sub-folder of its own."
        )
    files: list[_File] = []
    for label, name in enumerate(classes):
        found = sorted(_images_below(folder / name))
        if not found:
            raise UsageError(
                f"The class folder {str(folder / name)!r} holds no image "
                f"({', '.join(sorted(EXTENSIONS))}); add images or remove the folder."
            )
        files += [_File(file, label) for file in found]
    return tuple(classes), files


def _images_below(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if name[0] != "." and os.path.splitext(name)[1].lower() in EXTENSIONS:
                yield Path(base, name)


def _key(folder: Path, files: list[_File], size: int, channels: int, on_broken: str) -> str:
    options = [_FORMAT, str(folder.resolve()), size, channels, on_broken]
    digest = hashlib.sha256(json.dumps(options).encode())
    for file in files:
        status = file.path.stat()
        line = [str(file.path.relative_to(folder)), status.st_size, status.st_mtime_ns]
        digest.update(json.dumps(line).encode())
    return digest.hexdigest()[:24]


def _is_complete(entry: Path) -> bool:
    """Whether the cache entry can be opened; an entry cut short (a full disk) is removed."""
    try:
        meta = json.loads((entry / "meta.json").read_text())
        if (entry / "images.bin").stat().st_size == int(np.prod(meta["shape"])):
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass
    shutil.rmtree(entry, ignore_errors=True)
    return False


def _decode_into(
    entry: Path,
    names: tuple[str, ...],
    files: list[_File],
    size: int,
    channels: int,
    on_broken: str,
) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=entry.parent))
    try:
        labels: list[int] = []
        with open(building / "images.bin", "wb") as out:
            for file, pixels in _decoded(files, size, channels, on_broken):
                out.write(pixels.tobytes())
                labels.append(file.label)
        _check_none_empty(names, labels)
        meta = {"shape": [len(labels), size, size, channels], "labels": labels}
        (building / "meta.json").write_text(json.dumps(meta))
        _rename(building, entry)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _rename(building: Path, entry: Path) -> None:
    try:
        building.rename(entry)
    except OSError:
        if not _is_complete(entry):  # else another process was first: its entry is as good
            raise


def _decoded(
    files: list[_File], size: int, channels: int, on_broken: str
) -> Iterator[tuple[_File, np.ndarray]]:
    def decode(file: _File) -> np.ndarray | Exception:
        try:
            return decode_image(file.path, size, channels)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return error

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        for start in range(0, len(files), _CHUNK):
            chunk = files[start : start + _CHUNK]
            for file, result in zip(chunk, threads.map(decode, chunk), strict=True):
                if not isinstance(result, Exception):
                    yield file, result
                elif on_broken == "error":
                    raise UsageError(
                        f"The image {str(file.path)!r} cannot be decoded ({result}); repair or "
                        "remove it, or write on_broken: skip."
                    ) from result
                else:
                    warnings.warn(f"Skipped {str(file.path)!r}: {result}", stacklevel=2)


def _check_none_empty(names: tuple[str, ...], labels: list[int]) -> None:
    filled = {label for label, _ in itertools.groupby(labels)}
    empty = [name for label, name in enumerate(names) if label not in filled]
    if empty:
        raise UsageError(
            f"No image of the class {empty[0]!r} can be decoded; repair them or remove its folder."
        )


def _open(entry: Path, names: tuple[str, ...], folder: Path) -> ImageSet:
    meta = json.loads((entry / "meta.json").read_text())
    # Copy-on-write: the file is shared by all workers, and torch takes the array without a warning.
    images = np.memmap(entry / "images.bin", np.uint8, mode="c", shape=tuple(meta["shape"]))
    return ImageSet(images, np.array(meta["labels"], np.int64), names, folder.resolve().name)
