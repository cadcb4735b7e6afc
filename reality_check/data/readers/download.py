"""Downloads that survive a broken connection or a killed process, checked before they are used."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from reality_check.data.cache._bytes import byte_progress, format_bytes, size_of
from reality_check.data.readers._transfer import Unavailable, fetch
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import say


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Args:
        name: the name that it gets here.
        urls: where it lies, tried in this order; empty where no program can fetch it.
        checksum: ``"md5:..."`` or ``"sha256:..."`` (hex); None where none is published.
        size: bytes, where known.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None
    size: int | None = None


def download(remote: RemoteFile, folder: Path) -> Path:
    """Fetch a file unless it is there; what was fetched before a stop is kept and continued.

    The bytes go to ``NAME.part``; when all are there and the checksum is right, it is renamed. A
    second process that wants the same file waits for the first.

    Raises:
        UsageError: no address gives the file, its checksum is wrong, or the folder cannot take it.
    """
    target = folder / remote.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / f".{remote.name}.lock"
        doing = f"which downloads {str(target)!r}."
        with locked(lock, lambda holder: say(f"Waiting for {holder}, {doing}")) as held:
            if target.is_file():
                check_file(target, remote)
            else:
                # Without locks others may be at it, so this part is for this process only.
                part = folder / f"{remote.name}{'' if held else f'.{os.getpid()}'}.part"
                _fetch_from_any(remote, part)
                os.replace(part, target)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        advice = "make room and rerun; the download resumes" if full else "name another folder"
        raise UsageError(
            f"{remote.name} cannot be downloaded into {str(folder)!r} "
            f"({error.strerror or error}); {advice}."
        ) from error
    return target


def check_file(path: Path, remote: RemoteFile) -> None:
    """Refuse a file that is not the published one."""
    checksum = _digest(path, remote)
    if checksum != remote.checksum:
        raise UsageError(
            f"{str(path)!r} is incomplete, damaged or another version: its checksum is {checksum}, "
            f"but {remote.checksum} is published; delete it and download it again, or, if you "
            "trust it, unpack it yourself."
        )


def _digest(path: Path, remote: RemoteFile) -> str | None:
    """The checksum of a file by the published one's algorithm; None where none is published."""
    if remote.checksum is None:
        return None
    algorithm = remote.checksum.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    size = path.stat().st_size
    with open(path, "rb") as file, byte_progress(f"Checking {path.name}", size) as advance:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
            advance(len(chunk))
    return f"{algorithm}:{digest.hexdigest()}"


def _fetch_from_any(remote: RemoteFile, part: Path) -> None:
    failures = []
    for url in remote.urls:
        try:
            _fetch_checked(url, remote, part)
            return
        except Unavailable as error:
            failures.append(f"{url} ({error})")
    kept = f" ({format_bytes(size_of(part))} are kept)" if size_of(part) else ""
    raise UsageError(
        f"{remote.name} could not be downloaded: {'; '.join(failures)}. Check the connection and "
        f"run again{kept}, or fetch it on another machine and put it into {str(part.parent)!r}."
    )


def _fetch_checked(url: str, remote: RemoteFile, part: Path) -> None:
    continued = size_of(part) > 0
    fetch(url, part, remote.size)
    checksum = _digest(part, remote)
    if checksum == remote.checksum:
        return
    part.unlink()
    if continued:  # the older piece may be to blame
        say(f"The checksum of {remote.name} is wrong; downloading it from the start.")
        _fetch_checked(url, remote, part)
        return
    raise Unavailable(
        f"what came was removed: its checksum is {checksum}, but {remote.checksum} is published"
    )
