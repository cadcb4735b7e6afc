"""Unpacking archives: nothing outside the folder, nothing half-unpacked under its final name."""

from __future__ import annotations

import contextlib
import lzma
import os
import shutil
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Generator
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from reality_check.data.cache._bytes import byte_progress, check_space
from reality_check.utils.errors import UsageError

_PREFIX = ".unpacking-"
_COPY_BYTES = 1 << 20
_DAMAGED = (EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, BadGzipFile)


class _Member(NamedTuple):
    name: str
    seconds: float  # time of change
    content: IO[bytes] | None  # None for a folder
    read: int  # bytes of the archive up to its end


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar, .tgz or otherwise compressed tar file into a folder.

    All of it is unpacked under a temporary name and then renamed, one top-level entry after the
    other, so that a killed process leaves nothing half-unpacked under its own name. Files keep the
    archive's times of change. The archive stays. Two processes must not unpack into one folder at
    once (:func:`reality_check.utils.locks.locked`).

    Args:
        folder: existing folder; files of the same path are replaced, others stay.

    Raises:
        UsageError: the archive is damaged, needs a password, holds links or paths that lead out of
            the folder, or does not fit on the disk.
    """
    check_space(folder, archive.stat().st_size, f"Unpacking {archive.name}")
    for leftover in folder.glob(_PREFIX + "*"):  # of killed processes
        shutil.rmtree(leftover, ignore_errors=True)
    building: Path | None = None
    try:
        building = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        _extract(archive, building)
        for entry in sorted(building.iterdir()):
            _move(entry, folder / entry.name)
    except _DAMAGED as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # not the disk's: bz2 says so of its data
            raise _damaged(archive, error) from error
        raise UsageError(
            f"The archive {str(archive)!r} cannot be unpacked into {str(folder)!r} "
            f"({error.strerror or error}); make that possible, or unpack it elsewhere and name "
            "that folder."
        ) from error
    finally:
        if building is not None:
            shutil.rmtree(building, ignore_errors=True)


def _damaged(archive: Path, error: Exception) -> UsageError:
    reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
    return UsageError(
        f"The archive {str(archive)!r} is damaged or incomplete ({reason}); delete it and download "
        "it again."
    )


def _extract(archive: Path, into: Path) -> None:
    size = archive.stat().st_size
    done = 0
    with byte_progress(f"Unpacking {archive.name}", size) as advance:
        for member in _members(archive):
            target = into / _checked(member.name, archive)
            if member.content is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with member.content, open(target, "wb") as out:
                    shutil.copyfileobj(member.content, out, _COPY_BYTES)
                os.utime(target, (member.seconds, member.seconds))
            advance(member.read - done)
            done = member.read


def _checked(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or (os.name == "nt" and ":" in name):
        raise UsageError(
            f"The archive {str(archive)!r} holds the path {name!r}, which leads out of the folder; "
            "do not use it, download it again from the official page."
        )
    return path


def _members(archive: Path) -> Generator[_Member, None, None]:
    members = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive)
    with contextlib.closing(members):
        yield from (m for m in members if PurePosixPath(m.name).parts[:1] != ("__MACOSX",))


def _zip_members(archive: Path) -> Generator[_Member, None, None]:
    read = 0
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.flag_bits & 1:
                raise UsageError(
                    f"The archive {str(archive)!r} is locked with a password; unpack it yourself "
                    "with the password that its owners gave you."
                )
            read += info.compress_size
            seconds = time.mktime((*info.date_time, 0, 0, -1))
            content = None if info.is_dir() else file.open(info)
            yield _Member(info.filename, seconds, content, read)


def _tar_members(archive: Path) -> Generator[_Member, None, None]:
    with open(archive, "rb") as raw, tarfile.open(fileobj=raw, mode="r:*") as file:
        for info in file:
            if not info.isfile() and not info.isdir():
                raise UsageError(
                    f"The archive {str(archive)!r} holds {info.name!r}, which is neither a file "
                    "nor a folder (a link, say); unpack it yourself if you trust it."
                )
            content = file.extractfile(info) if info.isfile() else None
            yield _Member(info.name, info.mtime, content, raw.tell())
        _check_end(file)


def _check_end(file: tarfile.TarFile) -> None:
    """Read to the end: tarfile stops silently at a damaged header, gzip's checksum is last."""
    assert file.fileobj is not None
    while chunk := file.fileobj.read(_COPY_BYTES):
        if chunk.strip(b"\0"):
            raise tarfile.ReadError("the header of a file in it is damaged")


def _move(source: Path, target: Path) -> None:
    """Rename; where a folder of that name exists, its content is kept and added to."""
    if source.is_dir() and target.is_dir():
        for entry in sorted(source.iterdir()):
            _move(entry, target / entry.name)
    else:
        os.replace(source, target)
