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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reality_check.data._digests import image_digest, image_digests, usable_cores
from reality_check.data.images import Images
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress, say

PIXELS, INDEX = "pixels.bin", "index.npz"

_BUILDING = ".building-"
_STALE_SECONDS = 3 * 24 * 3600.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Images that each core decodes before any of them is written.
_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Entry:
    """The decoded images of a data set.

    Args:
        folder: where they are.
        rows: the files that could be decoded: ascending rows of the data set.
        shapes: int64, (len(rows), 3): height, width and channels.
        digests: uint8, (len(rows), 32): the sha256 of the pixels.
        broken: why each of the other rows could not be decoded.
    """

    folder: Path
    rows: np.ndarray
    shapes: np.ndarray
    digests: np.ndarray
    broken: dict[int, str]

    def images(self) -> Images:
        """Return the images of :attr:`rows`, memory-mapped read-only."""
        # Read-only, not copy-on-write: the system may refuse a private map larger than its memory.
        pixels = np.memmap(self.folder / PIXELS, np.uint8, mode="r")
        sizes = self.shapes.prod(axis=1)
        heights, widths, channels = self.shapes.T
        return Images(pixels, np.cumsum(sizes) - sizes, heights, widths, int(channels[0]))

    def first_damaged(self) -> int | None:
        """Read all pixels; return the first row that differs from its checksum, or None."""
        if not len(self.rows):
            return None
        wrong = np.flatnonzero((image_digests(self.images()) != self.digests).any(axis=1))
        return int(self.rows[wrong[0]]) if wrong.size else None


def open_entry(folder: Path) -> Entry | None:
    """Open an entry; return None if there is none, or its index or number of pixels is wrong."""
    try:
        with np.load(folder / INDEX, allow_pickle=False) as index:
            rows, shapes, digests = index["rows"], index["shapes"], index["digests"]
            broken = dict(zip(index["broken"].tolist(), index["reasons"].tolist(), strict=True))
        if (folder / PIXELS).stat().st_size != shapes.prod(axis=1).sum():
            return None
        return Entry(folder, rows, shapes, digests, broken)
    except Exception:  # zipfile and NumPy raise nearly anything for a damaged file
        return None


def obtain_entry(
    folder: Path, name: str, total: int, decode: Callable[[int], np.ndarray | str]
) -> Entry:
    """Open an entry; if there is none, or it is damaged, decode its images on all cores.

    Of several processes one decodes, the others wait for it.

    Args:
        folder: the entry's.
        name: of the data set, for messages.
        total: number of files.
        decode: returns the pixels of a row, or why there are none; called from many threads.

    Raises:
        UsageError: the cache folder cannot be written, or its disk is full; nothing is left there.
    """
    entry = open_entry(folder)
    if entry is not None:
        return entry
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, name) as held:
            existed = folder.exists()  # before: without locks, another may finish it just now
            entry = open_entry(folder)
            if entry is None:
                if existed:
                    say(f"The decoded images of {name!r} in {folder} are damaged; once more.")
                    shutil.rmtree(folder, ignore_errors=True)
                _remove_leftovers(folder, held)
                _write(folder, name, total, decode)
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


def remove_damaged(folder: Path, name: str) -> None:
    """Remove an entry, unless another process has decoded it again meanwhile."""
    try:
        with _lock(folder, name):
            entry = open_entry(folder)
            if folder.exists() and (entry is None or entry.first_damaged() is not None):
                shutil.rmtree(folder)
    except OSError as error:
        raise UsageError(f"The damaged {str(folder)!r} cannot be removed: {error}.") from error


def _lock(folder: Path, name: str) -> contextlib.AbstractContextManager[bool]:
    def waiting(holder: str) -> None:
        say(f"Waiting for {holder}, which decodes the images of {name!r}.")

    return locked(folder.with_name(f".lock-{folder.name}"), waiting)


def _write(folder: Path, name: str, total: int, decode: Callable[[int], np.ndarray | str]) -> None:
    building = folder.with_name(_prefix(folder) + secrets.token_hex(4))
    building.mkdir()
    try:
        with progress(f"Decoding the images of {name!r}", total) as advance:
            _write_images(building, _in_order(decode, total), advance)
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


def _in_order(decode: Callable[[int], np.ndarray | str], total: int) -> Iterator[np.ndarray | str]:
    """Decode on all cores, some images at a time."""
    cores = usable_cores()
    with ThreadPoolExecutor(cores) as threads:
        for first in range(0, total, _AT_ONCE * cores):
            yield from threads.map(decode, range(first, min(first + _AT_ONCE * cores, total)))


def _prefix(folder: Path) -> str:
    return f"{_BUILDING}{folder.name}-{socket.gethostname()}-"


def _remove_leftovers(folder: Path, held: bool) -> None:
    """Remove what killed processes left: of this entry on this machine, and all that is old.

    Locks of a network's file system may hold on one machine only, so that what another machine
    writes may still be in use.
    """
    for leftover in folder.parent.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):  # it has just been removed
            old = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
            if old or (held and leftover.name.startswith(_prefix(folder))):
                shutil.rmtree(leftover, ignore_errors=True)
