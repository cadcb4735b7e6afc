"""Read image files in folders and inside ``.zip`` files."""

from __future__ import annotations

import functools
import os
import re
import textwrap
import threading
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from reality_check.data.cache._decode import image_endings
from reality_check.utils.errors import UsageError

_MISSING = (-1, -1)
#: Names of hidden files, and of folders of NAS, recycle bins, archives and disk checks.
_CLUTTER = re.compile(
    r"(\..*|@eadir|@tmp|@recycle|@recently-snapshot|#recycle|#snapshot|\$recycle\.bin|lost\+found"
    r"|__macosx|__pycache__|system volume information|network trash folder|temporary items)?",
    re.IGNORECASE,
)
#: The file that marks this tool's own output folders.
_OUTPUT_MARKER = "experiment.yaml"
_STAT_THREADS = 16
_STAT_CHUNK = 256


class Sources:
    """The files below a folder; safe to read from several threads.

    A path may go through a ``.zip`` file as if it were a folder: ``images.zip/ant/0.jpg`` is the
    member ``ant/0.jpg`` of ``images.zip``. Nothing is unpacked, so a member's name can do no harm.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        # From a path that ends in .zip to the file; None if it is a folder.
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
            OSError: if it cannot be read from the disk.
            Exception: of any type, from zipfile, if the member is damaged.
        """
        archive, member = self._split_at_archive(path)
        if archive is None:
            return (self._root / path).read_bytes()
        with self._opening:
            if archive not in self._opened:
                self._opened[archive] = open_zip(archive)
        return self._opened[archive].read(member)

    def stamps(self, paths: Sequence[str]) -> np.ndarray:
        """Return numbers that change when a file does: int64, shape (N, 3), -1 for missing files.

        The first two are size and modification time in ns, or size and CRC-32 inside a ``.zip``
        file. The third is a hash that is the same for all names of a file, in this process.
        """
        chunks = [paths[i : i + _STAT_CHUNK] for i in range(0, len(paths), _STAT_CHUNK)]
        with ThreadPoolExecutor(_STAT_THREADS) as threads:  # network file systems are slow
            stamps = list(threads.map(lambda chunk: [self._stamp(path) for path in chunk], chunks))
        return np.array([stamp for chunk in stamps for stamp in chunk], np.int64).reshape(-1, 3)

    def _stamp(self, path: str) -> tuple[int, int, int]:
        """Return the three numbers of a file, see :meth:`stamps`."""
        archive, member = self._split_at_archive(path)
        if archive is not None:
            return (*_members(archive).get(member, _MISSING), hash((archive, member)))
        try:
            status = os.stat(os.path.join(self._root, path))
        except OSError:
            return (*_MISSING, -1)
        return status.st_size, status.st_mtime_ns, hash((status.st_dev, status.st_ino))

    def _split_at_archive(self, path: str) -> tuple[Path | None, str]:
        """Return the ``.zip`` file that a path goes through, or None, and the rest of the path."""
        if ".zip/" in path.lower():
            # Folders may have such names too, so each is looked up.
            for match in re.finditer(r"\.zip/", path, re.IGNORECASE):
                name = path[: match.end() - 1]
                if name not in self._archives:
                    file = (self._root / name).resolve()
                    self._archives[name] = file if file.is_file() else None
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


def images_below(root: Path) -> list[str]:
    """Return the paths of the images in the sub-folders of a folder or ``.zip`` file.

    The paths, of any depth, are relative to ``root`` and in no particular order. No folder is
    entered twice, whatever links lead to it. Hidden files, files that are not images, clutter of
    file managers and output of this tool are left out, and a warning counts them.

    Raises:
        UsageError: if a folder or the ``.zip`` file cannot be read.
    """
    names = list(_walk(root) if root.is_dir() else _members(root))  # members by name
    outputs = [
        name.removesuffix(_OUTPUT_MARKER) for name in names if name.endswith(f"/{_OUTPUT_MARKER}")
    ]
    images, left_out, endings = [], Counter[str](), image_endings()
    for name in names:
        *folders, file = name.split("/")
        ending = os.path.splitext(file)[1].lower()
        if clutter := list(filter(is_clutter, folders)):
            reason = f"{clutter[0]}/"
        elif above := list(filter(name.startswith, outputs)):
            reason = above[0]
        elif not file:  # the name of a folder that was not entered ends in a slash
            reason = name
        elif is_clutter(file):
            reason = "hidden files"
        elif ending not in endings:
            reason = ending or "no ending"
        elif not folders:
            reason = f"{ending} outside the sub-folders"
        else:
            images.append(name)
            continue
        # Other files outside the sub-folders, such as a README, are normal.
        if folders or ending in endings:
            left_out[reason] += 1
    if left_out:
        text = ", ".join(f"{reason} ({count})" for reason, count in left_out.most_common())
        warnings.warn(
            f"Not read in {str(root)!r}: {textwrap.shorten(text, 300)}. Images that Pillow does "
            "not read must be converted, to PNG for example.",
            stacklevel=3,
        )
    return images


def is_clutter(name: str) -> bool:
    """Return whether a file or folder is hidden, or made by a system for its own use."""
    return _CLUTTER.fullmatch(name) is not None


def _walk(root: Path) -> Iterator[str]:
    """Yield the files of each folder once, first of folders below ``root``, then of linked ones.

    Folders that are not entered are yielded with a slash at the end: clutter, and folders that were
    read already.
    """
    # From the identity of a folder to the path under which it was read.
    seen = {_identity(folder): "a folder above it" for folder in root.resolve().parents}
    starts = [root]
    for start in starts:  # linked folders are appended in the loop
        for base, folders, files in os.walk(start, onerror=_raise_unreadable):
            below = os.path.relpath(base, root).replace(os.sep, "/")
            first = seen.setdefault(_identity(base), below)
            if first != below:
                yield f"{below}/, which is {first}/"
                folders.clear()
                continue
            files += [f"{name}/" for name in folders if is_clutter(name)]
            folders[:] = sorted(name for name in folders if not is_clutter(name))
            # ``os.walk`` does not enter linked folders by itself.
            starts += [path for name in folders if (path := Path(base, name)).is_symlink()]
            yield from (name if below == "." else f"{below}/{name}" for name in files)


def _identity(folder: str | Path) -> tuple[int, int]:
    """Return numbers that are the same for all paths to a folder."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _raise_unreadable(error: OSError) -> None:
    raise UsageError(
        f"The folder {str(error.filename)!r} cannot be read ({error.strerror}); allow that, or "
        "remove it."
    ) from error


def _members(archive: Path) -> dict[str, tuple[int, int]]:
    """Return size and CRC-32 of each file in a ``.zip`` file by name, from a cache if unchanged."""
    status = archive.stat()
    return _list_members(archive, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _list_members(archive: Path, size: int, changed: int) -> dict[str, tuple[int, int]]:
    """See :func:`_members`; ``size`` and ``changed`` are only keys of the cache."""
    with open_zip(archive) as file:
        infos = [info for info in file.infolist() if not info.is_dir()]
        return {info.filename: (info.file_size, info.CRC) for info in infos}
