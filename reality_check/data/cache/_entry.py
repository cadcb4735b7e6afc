"""One data set in the cache: a folder with all decoded pixels and their index.

==============  ==================================================================================
``pixels.bin``  the images one after the other, uint8
``index.npz``   which files are in it, their sizes and checksums, and why the others are not
==============  ==================================================================================

It is written under another name and then renamed, so that a killed process leaves nothing that
could be taken for complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reality_check.data._cores import on_all_cores
from reality_check.data._digests import image_digest, image_digests
from reality_check.data.images import Images
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress, say

PIXELS, INDEX = "pixels.bin", "index.npz"

_BUILDING = ".building-"
_STALE_SECONDS = 3 * 24 * 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, eq=False)
class Entry:
    """The decoded images of a data set.

    Args:
        folder: the folder that holds them.
        rows: the files that could be decoded: ascending rows of the data set.
        shapes: int64, (len(rows), 3): height, width and channels.
        broken: why each of the other rows could not be decoded.
    """

    folder: Path
    rows: np.ndarray
    shapes: np.ndarray
    broken: dict[int, str]

    def images(self) -> Images:
        """Return the images of :attr:`rows`, memory-mapped read-only."""
        # Read-only, not copy-on-write: the system may refuse a private map larger than its memory.
        pixels = np.memmap(self.folder / PIXELS, np.uint8, mode="r")
        sizes = self.shapes.prod(axis=1)
        heights, widths, channels = self.shapes.T
        return Images(pixels, np.cumsum(sizes) - sizes, heights, widths, int(channels[0]))


def open_entry(folder: Path, verify: bool = False) -> Entry | None:
    """Open an entry; return None if there is none, or it is damaged.

    Args:
        verify: compare all pixels with their checksums, instead of their number alone.
    """
    try:
        with np.load(folder / INDEX, allow_pickle=False) as index:
            rows, shapes, digests = index["rows"], index["shapes"], index["digests"]
            broken = dict(zip(index["broken"].tolist(), index["reasons"].tolist(), strict=True))
        if (folder / PIXELS).stat().st_size != shapes.prod(axis=1).sum():
            return None
        entry = Entry(folder, rows, shapes, broken)
        if verify and len(rows) and (image_digests(entry.images()) != digests).any():
            return None
        return entry
    except Exception:  # zipfile and NumPy raise nearly anything for a damaged file
        return None


def obtain_entry(
    folder: Path,
    name: str,
    total: int,
    decode: Callable[[int], np.ndarray | str],
    verify: bool = False,
) -> Entry:
    """Open an entry; if there is none, or it is damaged, make its images on all cores.

    Of several processes one makes them, the others wait for it.

    Args:
        folder: the entry's.
        name: of the data set, for messages.
        total: number of images.
        decode: returns the pixels of a row, or why there are none; called from many threads.
        verify: see :func:`open_entry`.

    Raises:
        UsageError: the cache folder cannot be written, or its disk is full; nothing is left there.
    """
    entry = open_entry(folder, verify)
    if entry is not None:
        return entry

    def waiting(holder: str) -> None:
        say(f"Waiting for {holder}, which decodes the images of {name!r}.")

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f".lock-{folder.name}"), waiting) as held:
            existed = folder.exists()  # before: without locks, another may finish it just now
            entry = open_entry(folder, verify)
            if entry is None:
                if existed:
                    say(f"The decoded images of {name!r} in {folder} are damaged; once more.")
                    shutil.rmtree(folder, ignore_errors=True)
                _write(folder, held, name, total, decode)
                entry = open_entry(folder)
    except OSError as error:
        reason = "its disk is full" if error.errno in _FULL else str(error)
        raise UsageError(
            f"The decoded images cannot be written to the cache folder {str(folder.parent)!r} "
            f"({reason}); set REALITY_CHECK_CACHE to a folder that is writable and has enough "
            "space."
        ) from error
    if entry is None:
        raise UsageError(f"What was written to {str(folder)!r} cannot be read; check the disk.")
    return entry


def _write(
    folder: Path, held: bool, name: str, total: int, decode: Callable[[int], np.ndarray | str]
) -> None:
    """Write an entry in a temporary folder, and rename it.

    The temporary folder has the machine in its name: the locks of a network's file system may hold
    on one machine only. So what a killed process left is removed by the next one on its machine,
    or by any after three days.
    """
    for leftover in folder.parent.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):  # it has just been removed
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover)
    unique = "" if held else f"-{secrets.token_hex(4)}"
    building = folder.with_name(f"{_BUILDING}{folder.name}-{socket.gethostname()}{unique}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        with progress(f"Decoding the images of {name!r}", total) as advance:
            _write_images(building, on_all_cores(decode, total), advance)
        try:
            building.rename(folder)
        except OSError:
            if open_entry(folder) is None:  # else, without locks, another was first
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write_images(
    building: Path, decoded: Iterable[np.ndarray | str], advance: Callable[[int], None]
) -> None:
    rows, shapes, digests = [], [], []
    broken: dict[int, str] = {}
    with open(building / PIXELS, "wb") as pixels:
        for row, image in enumerate(decoded):
            if isinstance(image, str):
                broken[row] = image
            else:
                pixels.write(image.data)
                rows.append(row)
                shapes.append(image.shape)
                digests.append(image_digest(image))
            advance(1)
        pixels.flush()
        os.fsync(pixels.fileno())
    with open(building / INDEX, "wb") as index:
        np.savez(
            index,
            rows=np.array(rows, np.int64),
            shapes=np.array(shapes, np.int64).reshape(-1, 3),
            digests=np.array(digests, np.uint8).reshape(-1, 32),
            broken=np.array(list(broken), np.int64),
            reasons=np.array(list(broken.values()), str),
        )
        index.flush()
        os.fsync(index.fileno())
