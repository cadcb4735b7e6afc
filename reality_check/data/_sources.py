"""Bytes of image files, whether they lie in a folder or inside a ``.zip`` file."""

from __future__ import annotations

import functools
import os
import re
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from reality_check.errors import UsageError

_MISSING = (-1, -1)
_STAT_THREADS = 16
_STAT_CHUNK = 256


class Sources:
    """The files below a folder; safe to read from several threads.

    A path may go through a ``.zip`` file as if it were a folder: ``images.zip/ant/0.jpg`` is the
    member ``ant/0.jpg`` of ``images.zip``. Nothing is unpacked, so a member's name can do no harm.

    Args:
        root: folder that all paths are below.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._archives: dict[str, zipfile.ZipFile | None] = {}

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        for archive in self._archives.values():
            if archive is not None:
                archive.close()

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: it cannot be read from the disk.
            Exception: what zipfile raises for a damaged member.
        """
        archive, member = self._find(path)
        if archive is not None:
            return archive.read(member)
        with open(os.path.join(self._root, path), "rb") as file:
            return file.read()

    def stamps(self, paths: Sequence[str]) -> np.ndarray:
        """Return what changes when a file does: int64, shape (N, 2); -1 for a missing file.

        That is size and time of change (ns), or size and CRC-32 inside a ``.zip`` file.
        """
        self._open_archives(paths)
        chunks = [paths[i : i + _STAT_CHUNK] for i in range(0, len(paths), _STAT_CHUNK)]
        with ThreadPoolExecutor(_STAT_THREADS) as threads:  # waits, on a network's file system
            found = list(threads.map(lambda chunk: [self._stamp(path) for path in chunk], chunks))
        return np.array([stamp for chunk in found for stamp in chunk], np.int64).reshape(-1, 2)

    def _stamp(self, path: str) -> tuple[int, int]:
        archive, member = self._find(path)
        try:
            if archive is not None:
                info = archive.getinfo(member)
                return info.file_size, info.CRC
            status = os.stat(os.path.join(self._root, path))
            return status.st_size, status.st_mtime_ns
        except (OSError, KeyError):
            return _MISSING

    def _open_archives(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._find(path)

    def _find(self, path: str) -> tuple[zipfile.ZipFile | None, str]:
        if ".zip/" not in path.lower():
            return None, path
        for match in re.finditer(r"\.zip/", path, re.IGNORECASE):
            name, member = path[: match.end() - 1], path[match.end() :]
            if name not in self._archives:
                file = self._root / name
                self._archives[name] = open_zip(file) if file.is_file() else None
            archive = self._archives[name]
            if archive is not None:
                return archive, member
        return None, path


def open_zip(file: Path) -> zipfile.ZipFile:
    """Open a ``.zip`` file for reading.

    Raises:
        UsageError: it cannot be read or is damaged.
    """
    try:
        return zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UsageError(
            f"{str(file)!r} cannot be read as a .zip file ({error}); fetch it again, or unpack it "
            "and name the folder."
        ) from error


def zip_members(file: Path) -> tuple[str, ...]:
    """Return the names of the files inside a ``.zip`` file, in its order.

    Raises:
        UsageError: it cannot be read or is damaged.
    """
    status = file.stat()
    return _members(file, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _members(file: Path, size: int, changed: int) -> tuple[str, ...]:
    with open_zip(file) as archive:
        return tuple(info.filename for info in archive.infolist() if not info.is_dir())
