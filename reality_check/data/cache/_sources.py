"""Bytes of image files, whether they lie in a folder or inside a ``.zip`` file."""

from __future__ import annotations

import functools
import os
import re
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from reality_check.utils.errors import UsageError

_MISSING = (-1, -1)
_STAT_THREADS = 16
_STAT_CHUNK = 256


class Sources:
    """The files below a folder; safe to read from several threads.

    A path may go through a ``.zip`` file as if it were a folder: ``images.zip/ant/0.jpg`` is the
    member ``ant/0.jpg`` of ``images.zip``. Nothing is unpacked, so a member's name can do no harm.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._archives: dict[str, Path | None] = {}
        self._opened: dict[Path, zipfile.ZipFile] = {}
        self._opening = threading.Lock()

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        for archive in self._opened.values():
            archive.close()

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: it cannot be read from the disk.
            Exception: what zipfile raises for a damaged member.
        """
        archive, member = self._split(path)
        if archive is None:
            with open(os.path.join(self._root, path), "rb") as file:
                return file.read()
        with self._opening:
            if archive not in self._opened:
                self._opened[archive] = open_zip(archive)
        return self._opened[archive].read(member)

    def stamps(self, paths: Sequence[str]) -> np.ndarray:
        """Return what changes when a file does: int64, shape (N, 2); -1 for a missing file.

        That is size and time of change (ns), or size and CRC-32 inside a ``.zip`` file.
        """
        chunks = [paths[i : i + _STAT_CHUNK] for i in range(0, len(paths), _STAT_CHUNK)]
        with ThreadPoolExecutor(_STAT_THREADS) as threads:  # waits, on a network's file system
            stamps = list(threads.map(lambda chunk: [self._stamp(path) for path in chunk], chunks))
        return np.array([stamp for chunk in stamps for stamp in chunk], np.int64).reshape(-1, 2)

    def _stamp(self, path: str) -> tuple[int, int]:
        archive, member = self._split(path)
        if archive is not None:
            return _members(archive).get(member, _MISSING)
        try:
            status = os.stat(os.path.join(self._root, path))
        except OSError:
            return _MISSING
        return status.st_size, status.st_mtime_ns

    def _split(self, path: str) -> tuple[Path | None, str]:
        """The ``.zip`` file that a path goes through, if it does, and the rest of the path."""
        if ".zip/" in path.lower():
            for match in re.finditer(r"\.zip/", path, re.IGNORECASE):
                name = path[: match.end() - 1]
                if name not in self._archives:
                    self._archives[name] = file if (file := self._root / name).is_file() else None
                if (archive := self._archives[name]) is not None:
                    return archive, path[match.end() :]
        return None, path


def open_zip(file: Path) -> zipfile.ZipFile:
    """Open a ``.zip`` file for reading."""
    try:
        return zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UsageError(
            f"{str(file)!r} cannot be read as a .zip file ({error}); fetch it again, or unpack it "
            "and name the folder."
        ) from error


def files_below(place: Path) -> list[str]:
    """Return the paths of the files in a folder, or in a ``.zip`` file, relative to it.

    At any depth and in no particular order. What begins with a dot, and ``__MACOSX`` of archives
    made on a Mac, is left out.

    Raises:
        UsageError: the ``.zip`` file cannot be read or is damaged.
    """
    if place.is_dir():
        return list(_walk(place))
    parts = {name: name.split("/") for name in _members(place)}
    hidden = {name for name, of in parts.items() if any(part[:1] in (".", "") for part in of)}
    return [name for name, of in parts.items() if of[0] != "__MACOSX" and name not in hidden]


def _walk(folder: Path) -> Iterator[str]:
    for base, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name[0] != "."]
        below = os.path.relpath(base, folder).replace(os.sep, "/")
        start = "" if below == "." else f"{below}/"
        yield from (start + name for name in names if name[0] != ".")


def _members(archive: Path) -> dict[str, tuple[int, int]]:
    """Size and CRC-32 of each file in a ``.zip`` file, by its name."""
    status = archive.stat()
    return _list_members(archive, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _list_members(archive: Path, size: int, changed: int) -> dict[str, tuple[int, int]]:
    with open_zip(archive) as file:
        infos = [info for info in file.infolist() if not info.is_dir()]
        return {info.filename: (info.file_size, info.CRC) for info in infos}
