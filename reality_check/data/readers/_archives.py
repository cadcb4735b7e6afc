"""Unpack archives, so that no file is outside the folder or incomplete under its final name."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from reality_check.utils.byte_progress import byte_progress
from reality_check.utils.errors import UsageError

_PREFIX = ".unpacking-"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar, .tgz or otherwise compressed tar file into a folder.

    Everything is unpacked under a temporary name and then renamed, one top-level entry after the
    other, so that a killed process leaves no incomplete file under its final name. The archive is
    kept. Two processes must not unpack into the same folder at once
    (:func:`reality_check.utils.locks.locked`).

    Args:
        folder: existing folder; files with the same path are replaced, others are kept.

    Raises:
        UsageError: if the archive is damaged, needs a password, or contains links or paths that
            lead out of the folder.
        OSError: if the folder cannot be written.
    """
    for leftover in folder.glob(_PREFIX + "*"):  # left by killed processes
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
    try:
        _extract(archive, temporary)
        for entry in sorted(temporary.iterdir()):
            _move(entry, folder / entry.name)
    except Exception as error:  # zipfile and tarfile raise nearly anything for a damaged file
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; OSErrors of bz2 about its data have no errno
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise UsageError(
            f"The archive {str(archive)!r} cannot be unpacked ({reason}): it is damaged, locked "
            "or not the official one; delete it and download it again, or unpack it yourself."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _extract(archive: Path, target: Path) -> None:
    """Unpack an archive into the folder ``target``, with a progress bar."""
    description = f"Unpacking {archive.name}"
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            members = [m for m in packed.infolist() if not m.filename.startswith("__MACOSX/")]
            with byte_progress(description, sum(member.file_size for member in members)) as advance:
                for member in members:
                    packed.extract(member, target)  # without parts of paths that lead out of it
                    advance(member.file_size)
        return
    with (
        open(archive, "rb") as raw,
        tarfile.open(fileobj=raw, mode="r:*") as file,
        byte_progress(description, archive.stat().st_size) as advance,
    ):
        done = 0
        for info in file:
            file.extract(info, target, filter="data")  # "data" refuses paths that lead out of it
            advance(raw.tell() - done)
            done = raw.tell()
        assert file.fileobj is not None
        # Gzip checks its checksum at the end of the file.
        while chunk := file.fileobj.read(1 << 20):
            if chunk.strip(b"\0"):  # tarfile stops silently at a damaged header
                raise tarfile.ReadError("the header of a file in it is damaged")


def _move(source: Path, target: Path) -> None:
    """Rename an entry; a folder is merged into an existing folder of that name."""
    if source.is_dir() and target.is_dir():
        for entry in sorted(source.iterdir()):
            _move(entry, target / entry.name)
    else:
        os.replace(source, target)
