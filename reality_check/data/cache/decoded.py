"""Data sets decoded once into the cache folder, and opened memory-mapped from then on."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import PIL

from reality_check.data.cache._decode import Resize, decode_image
from reality_check.data.cache._entry import Entry, obtain_entry
from reality_check.data.cache._sources import Sources
from reality_check.data.image_files import ImageFiles
from reality_check.data.sample_set import ImageSet
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import cache_folder

_FORMAT = 3  # part of the cache's key: raise it when the decoded pixels or the files change


def decode_files(
    files: ImageFiles,
    size: int,
    channels: Literal[1, 3] = 3,
    resize: Resize = "short_side",
    on_broken: Literal["error", "skip"] = "error",
    verify: bool = False,
) -> ImageSet:
    """Decode a data set, or open what was decoded before.

    The decoded images are kept in the cache folder (``REALITY_CHECK_CACHE``), one entry per data
    set, size, channels and resize rule. If a file was added, removed or changed (in size or
    modification time), everything is decoded again. All cores are used. If several processes need
    the same images, one decodes them and the others wait.

    Args:
        files: the data set. A path may go through a ``.zip`` file as through a folder.
        size: short side of the decoded images in pixels; ignored if ``resize="none"``.
        channels: 1 (grey) or 3 (RGB); every image is converted.
        resize: ``"short_side"`` resizes the short side to ``size`` (bilinear, antialiased, long
            side rounded down, as torchvision's ``Resize``) and keeps the whole image;
            ``"square"`` then crops the centre; ``"none"`` keeps the size of the files.
        on_broken: what to do with files that are missing or cannot be decoded: ``"error"`` names
            the first, ``"skip"`` leaves them out and lists them in :attr:`ImageSet.skipped`.
        verify: whether to read all images that were decoded earlier and compare them with their
            checksums; if one differs, everything is decoded again.

    Returns:
        The images in the order of ``files``, memory-mapped read-only.

    Raises:
        UsageError: if an option is out of range, a file is broken (or, for ``"skip"``, all of a
            class) or is listed twice, or the cache folder cannot be written.
    """
    _check_options(size, channels, resize, on_broken)
    with Sources(files.root) as sources:
        stamps = sources.stamps(files.paths)
        missing = stamps[:, 0] < 0
        if on_broken == "error":
            _check_none_missing(files, missing)
        _check_listed_once(files, stamps)
        # With "none", the size has no effect, so all sizes share an entry.
        options = {"size": 0 if resize == "none" else size, "channels": channels, "resize": resize}
        # The third number of a stamp is different in each process.
        folder = cache_folder() / _entry_name(files, stamps[:, :2], options)

        def decode(row: int) -> np.ndarray | str:
            if missing[row]:
                return "there is no such file"
            return _decode(files, sources, row, size, channels, resize)

        entry = obtain_entry(folder, files.name, len(files), decode, verify)
    return _build_image_set(files, entry, on_broken)


def _decode(
    files: ImageFiles, sources: Sources, row: int, size: int, channels: int, resize: Resize
) -> np.ndarray | str:
    """Return the pixels of a file, or the reason why it cannot be decoded."""
    path = files.paths[row]
    try:
        return decode_image(sources.read(path), size, channels, resize)
    except MemoryError:
        raise
    except OSError as error:
        if error.errno is None:  # raised by Pillow, not by the system
            return _describe_error(error)
        # This is an error of the disk, so the image must not be recorded as broken.
        raise UsageError(
            f"{str(files.root / path)!r} cannot be read ({error}); fix that and try again."
        ) from error
    except Exception as error:  # zipfile and Pillow raise nearly anything for a damaged file
        return _describe_error(error)


def _describe_error(error: Exception) -> str:
    if isinstance(error, PIL.UnidentifiedImageError):
        return "it is not an image that Pillow can read"
    return " ".join(str(error).split()) or type(error).__name__


def _build_image_set(files: ImageFiles, entry: Entry, on_broken: str) -> ImageSet:
    """Return the decoded images; raise UsageError or warn if others could not be decoded."""
    rows = entry.rows
    skipped = tuple(
        f"{_printable(files.paths[row])}: {reason}" for row, reason in entry.broken.items()
    )
    if skipped and on_broken == "error":
        path, _, reason = skipped[0].partition(": ")
        others = f", nor can {len(skipped) - 1} more" if len(skipped) > 1 else ""
        raise UsageError(
            f"The image {path!r} of {files.name!r} cannot be decoded ({reason}){others}; repair or "
            "remove what is broken, or write on_broken: skip."
        )
    labels = files.labels[rows]
    _check_none_empty(files, labels)
    if skipped:
        count = f"{len(skipped)} of {len(files)} images of {files.name!r}"
        warnings.warn(f"Skipped {count}; the first is {skipped[0]}", stacklevel=3)
    return ImageSet(
        entry.images(),
        labels,
        files.class_names,
        files.name,
        test_classes=files.test_classes,
        queries=None if files.queries is None else files.queries[rows],
        skipped=skipped,
        sample_names=np.array([files.paths[row] for row in rows], dtype=object),
    )


def _printable(path: str) -> str:
    """Return a path with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def _check_options(size: int, channels: int, resize: str, on_broken: str) -> None:
    """Raise UsageError if an option of :func:`decode_files` is out of range."""
    if size < 1:
        raise UsageError(f"size={size}, but images need at least 1 pixel; write size: 256.")
    for name, value, allowed in (
        ("channels", channels, (1, 3)),
        ("resize", resize, get_args(Resize)),
        ("on_broken", on_broken, ("error", "skip")),
    ):
        if value not in allowed:
            raise UsageError(f"{name}={value!r}, but it must be one of {allowed}.")


def _check_none_missing(files: ImageFiles, missing: np.ndarray) -> None:
    """Raise UsageError if a file is missing, as the mask ``missing`` (N,) says."""
    rows = np.flatnonzero(missing)
    if rows.size:
        more = f" and {rows.size - 1} more files" if rows.size > 1 else ""
        raise UsageError(
            f"{files.name!r} lists {_printable(files.paths[rows[0]])!r}{more}, but there is no "
            f"such file below {str(files.root)!r}; complete it, or write on_broken: skip."
        )


def _check_listed_once(files: ImageFiles, stamps: np.ndarray) -> None:
    """Raise UsageError if a file has two names: an image would find itself, or have two classes."""
    row_of_stamp: dict[tuple[int, ...], int] = {}
    for row, stamp in enumerate(map(tuple, stamps.tolist())):
        if stamp[0] >= 0 and row_of_stamp.setdefault(stamp, row) != row:
            names = [
                f"{_printable(files.paths[i])!r} (class {files.class_names[files.labels[i]]!r})"
                for i in (row_of_stamp[stamp], row)
            ]
            raise UsageError(
                f"{' and '.join(names)} of {files.name!r} are one file, so an image would find "
                "itself; remove one, or replace a link by a copy if both are meant."
            )


def _check_none_empty(files: ImageFiles, labels: np.ndarray) -> None:
    """Raise UsageError unless the decoded images, whose labels are given, have all classes."""
    empty = np.flatnonzero(np.bincount(labels, minlength=len(files.class_names)) == 0)
    if empty.size:
        raise UsageError(
            f"No image of the class {files.class_names[empty[0]]!r} of {files.name!r} can be "
            "decoded; repair them or remove the class."
        )


def _entry_name(files: ImageFiles, stamps: np.ndarray, options: Mapping[str, object]) -> str:
    """Return a folder name that changes if a file's stamp or an option does."""
    digest = hashlib.sha256(json.dumps([_FORMAT, str(files.root.resolve()), options]).encode())
    digest.update("\0".join(files.paths).encode("utf-8", "surrogateescape"))
    digest.update(stamps.tobytes())
    name = re.sub(r"[^A-Za-z0-9.]+", "_", files.name)[:40]
    return f"decoded-{name}-{digest.hexdigest()[:24]}"
