"""Unpacking archives: nothing outside the folder, nothing half-unpacked under its final name."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from reality_check.data._bytes import byte_progress
from reality_check.utils.errors import UsageError

_PREFIX = ".unpacking-"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar, .tgz or otherwise compressed tar file into a folder.

    All of it is unpacked under a temporary name and then renamed, one top-level entry after the
    other, so that a killed process leaves nothing half-unpacked under its own name. The archive
    stays. Two processes must not unpack into one folder at once
    (:func:`reality_check.utils.locks.locked`).

    Args:
        folder: existing folder; files of the same path are replaced, others stay.

    Raises:
        UsageError: the archive is damaged, needs a password, or holds links or paths that lead out
            of the folder.
        OSError: the folder cannot be written.
    """
    for leftover in folder.glob(_PREFIX + "*"):  # of killed processes
        shutil.rmtree(leftover, ignore_errors=True)
    building = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
    try:
        _extract(archive, building)
        for entry in sorted(building.iterdir()):
            _move(entry, folder / entry.name)
    except Exception as error:  # zipfile and tarfile raise nearly anything for a damaged file
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's, while bz2 says so of its data
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise UsageError(
            f"The archive {str(archive)!r} cannot be unpacked ({reason}): it is damaged, locked "
            "or not the official one; delete it and download it again, or unpack it yourself."
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _extract(archive: Path, into: Path) -> None:
    what = f"Unpacking {archive.name}"
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            members = [m for m in packed.infolist() if not m.filename.startswith("__MACOSX/")]
            with byte_progress(what, sum(member.file_size for member in members)) as advance:
                for member in members:
                    packed.extract(member, into)  # drops what would lead out of the folder
                    advance(member.file_size)
        return
    with (
        open(archive, "rb") as raw,
        tarfile.open(fileobj=raw, mode="r:*") as file,
        byte_progress(what, archive.stat().st_size) as advance,
    ):
        done = 0
        for info in file:
            file.extract(info, into, filter="data")  # refuses what leads out of the folder
            advance(raw.tell() - done)
            done = raw.tell()
        assert file.fileobj is not None
        while chunk := file.fileobj.read(1 << 20):  # to the end, where gzip's checksum is
            if chunk.strip(b"\0"):  # tarfile stops silently at a damaged header
                raise tarfile.ReadError("the header of a file in it is damaged")


def _move(source: Path, target: Path) -> None:
    """Rename an entry; an existing folder of that name keeps its content and is added to."""
    if source.is_dir() and target.is_dir():
        for entry in sorted(source.iterdir()):
            _move(entry, target / entry.name)
    else:
        os.replace(source, target)
