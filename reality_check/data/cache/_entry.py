"""One data set in the cache: a folder with all decoded pixels and their index.

==============  ==================================================================================
``pixels.bin``  the images one after the other, uint8
``index.npz``   the images' files, sizes and checksums, and why other files could not be decoded
==============  ==================================================================================

A folder is written under a temporary name and then renamed, so that the remains of a killed process
are not mistaken for a complete folder.
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
from reality_check.data._digests import array_digest, image_digests
from reality_check.data.images import Images
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress, say

PIXELS, INDEX = "pixels.bin", "index.npz"

_BUILDING = ".building-"
_STALE_SECONDS = 3 * 24 * 3600.0
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, eq=False)
class Entry:
    """The decoded images of a data set.

    Args:
        folder: the folder of the entry.
        rows: indices of the files that could be decoded, ascending.
        shapes: int64, shape (len(rows), 3): height, width and channels of each image.
        broken: from the index of each other file to the reason why it could not be decoded.
    """

    folder: Path
    rows: np.ndarray
    shapes: np.ndarray
    broken: dict[int, str]

    def images(self) -> Images:
        """Return the images of :attr:`rows`, memory-mapped read-only."""
        # "r", not copy-on-write: systems may refuse such a map if it is larger than their memory.
        pixels = np.memmap(self.folder / PIXELS, np.uint8, mode="r")
        sizes = self.shapes.prod(axis=1)
        heights, widths, channels = self.shapes.T
        # An image begins where the sizes before it add up to.
        return Images(pixels, np.cumsum(sizes) - sizes, heights, widths, int(channels[0]))


def open_entry(folder: Path, verify: bool = False) -> Entry | None:
    """Open an entry; return None if it does not exist or is damaged.

    Args:
        verify: whether to compare all pixels with their checksums, instead of only their number.
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
    """Open an entry, or write it, on all cores, if it does not exist or is damaged.

    If several processes need the same entry, one writes it and the others wait.

    Args:
        folder: the folder of the entry.
        name: name of the data set in messages.
        total: number of image files.
        decode: returns the pixels of the file with a given index, or the reason why it cannot be
            decoded; called from many threads.
        verify: see :func:`open_entry`.

    Raises:
        UsageError: if the cache folder cannot be written; nothing is left there.
    """
    entry = open_entry(folder, verify)
    if entry is not None:
        return entry

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f".lock-{folder.name}")
        with locked(lock, f"decodes the images of {name!r}.", say) as has_lock:
            existed = folder.exists()  # checked first: without locks, another process may add it
            entry = open_entry(folder, verify)  # which another process may have written meanwhile
            if entry is None:
                if existed:
                    say(f"The decoded images of {name!r} in {folder} are damaged; once more.")
                    shutil.rmtree(folder, ignore_errors=True)
                _write(folder, has_lock, name, total, decode)
                entry = open_entry(folder)
    except OSError as error:
        reason = "its disk is full" if error.errno in _DISK_FULL else str(error)
        raise UsageError(
            f"The decoded images cannot be written to the cache folder {str(folder.parent)!r} "
            f"({reason}); set REALITY_CHECK_CACHE to a folder that is writable and has enough "
            "space."
        ) from error
    if entry is None:
        raise UsageError(f"What was written to {str(folder)!r} cannot be read; check the disk.")
    return entry


def _write(
    folder: Path, has_lock: bool, name: str, total: int, decode: Callable[[int], np.ndarray | str]
) -> None:
    """Write an entry to a temporary folder and rename it.

    The name of the temporary folder contains the machine, because locks of a network file system
    may work within one machine only. The remains of a killed process are removed by the next
    process on its machine, or by any process after three days.
    """
    for leftover in folder.parent.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):  # another process has removed it
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover)
    unique = "" if has_lock else f"-{secrets.token_hex(4)}"
    temporary = folder.with_name(f"{_BUILDING}{folder.name}-{socket.gethostname()}{unique}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        with progress(f"Decoding the images of {name!r}", total) as advance:
            _write_images(temporary, on_all_cores(decode, total), advance)
        try:
            temporary.rename(folder)
        except OSError:
            if open_entry(folder) is None:  # without locks, another process may have been first
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_images(
    temporary: Path, decoded: Iterable[np.ndarray | str], advance: Callable[[int], None]
) -> None:
    """Write the pixels and the index of decoded images, and sync them to the disk."""
    rows, shapes, digests = [], [], []
    broken: dict[int, str] = {}
    with open(temporary / PIXELS, "wb") as pixels:
        for row, image in enumerate(decoded):
            if isinstance(image, str):
                broken[row] = image
            else:
                pixels.write(image.data)
                rows.append(row)
                shapes.append(image.shape)
                digests.append(array_digest(image))
            advance(1)
        pixels.flush()
        os.fsync(pixels.fileno())
    with open(temporary / INDEX, "wb") as index:
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
