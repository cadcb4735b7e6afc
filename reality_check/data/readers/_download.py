"""Downloads that continue after a broken connection or a kill, checked before they are used."""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check._version import __version__
from reality_check.data._bytes import byte_progress, format_bytes, size_of
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import say

#: Connections in a row that may break without a new byte before an address is given up.
ATTEMPTS = 5
#: Seconds to wait before the second connection; doubled for each further one.
WAIT_SECONDS = 1.0
_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20
_NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Args:
        name: the name that it is saved under.
        urls: its addresses, tried in this order; empty where no program can fetch it.
        checksum: ``"md5:..."`` or ``"sha256:..."`` (hex); None only where there are no addresses.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None


def download(remote: RemoteFile, folder: Path) -> Path:
    """Fetch a file unless it exists; continue where an earlier call stopped.

    The bytes go to ``NAME.part``, which is renamed when its checksum is right. A second process
    that wants the same file waits for the first.

    Raises:
        UsageError: no address gives the file, its checksum is wrong, or the folder cannot take it.
    """
    target = folder / remote.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock, doing = folder / f".{remote.name}.lock", f"which downloads {str(target)!r}."
        with locked(lock, lambda holder: say(f"Waiting for {holder}, {doing}")) as held:
            if target.is_file():
                check_file(target, remote)
            else:
                # Without locks another process may write NAME.part.
                part = folder / f"{remote.name}{'' if held else f'.{os.getpid()}'}.part"
                _fetch(remote, part)
                os.replace(part, target)
    except OSError as error:
        raise UsageError(
            f"{remote.name} cannot be downloaded into {str(folder)!r} "
            f"({error.strerror or error}); make room or name another folder, and rerun: the "
            "download resumes."
        ) from error
    return target


def check_file(path: Path, remote: RemoteFile) -> None:
    """Refuse a file that is not the published one."""
    checksum = _checksum(path, remote)
    if checksum != remote.checksum:
        raise UsageError(
            f"{str(path)!r} is incomplete, damaged or another version: its checksum is {checksum}, "
            f"but {remote.checksum} is published; delete it and download it again, or, if you "
            "trust it, unpack it yourself."
        )


def _checksum(path: Path, remote: RemoteFile) -> str | None:
    """Return the checksum of a file by the published one's algorithm; None where there is none."""
    if remote.checksum is None:
        return None
    algorithm = remote.checksum.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def _fetch(remote: RemoteFile, part: Path) -> None:
    """Fetch a file from the first address that gives it."""
    failures = []
    for url in remote.urls:
        try:
            _fetch_whole(url, part)
        except _NETWORK as error:
            failures.append(f"{url} ({str(error) or type(error).__name__})")
            continue
        checksum = _checksum(part, remote)
        if checksum == remote.checksum:
            return
        part.unlink()
        failures.append(f"{url} (its checksum is {checksum}, but {remote.checksum} is published)")
    kept = f" ({format_bytes(size_of(part))} are kept)" if size_of(part) else ""
    raise UsageError(
        f"{remote.name} could not be downloaded: {'; '.join(failures)}. Check the connection and "
        f"run again{kept}, or fetch it on another machine and put it into {str(part.parent)!r}."
    )


def _fetch_whole(url: str, part: Path) -> None:
    """Fetch all bytes, connecting again as long as some come."""
    failed = 0
    while True:
        before = size_of(part)
        try:
            return _fetch_rest(url, part, before)
        except _NETWORK as error:
            failed = failed + 1 if size_of(part) <= before else 1
            if failed == ATTEMPTS or _is_final(error):
                raise
        time.sleep(WAIT_SECONDS * 2 ** (failed - 1))


def _is_final(error: Exception) -> bool:
    """Whether the server refuses, or there is no network or no such server."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code < 500 and error.code not in (408, 429)
    return isinstance(getattr(error, "reason", None), socket.gaierror)


def _fetch_rest(url: str, part: Path, start: int) -> None:
    headers = {"User-Agent": f"reality-check/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # nothing follows: the checksum says whether it is whole
            return
        raise
    with response:
        start = start if response.status == 206 else 0  # some servers begin again
        length = response.headers.get("Content-Length")
        total = start + int(length or 0)
        name, host = part.name.removesuffix(".part"), urllib.parse.urlsplit(url).hostname
        what = f"Downloading {name} ({format_bytes(total) if length else 'size unknown'})"
        say(f"{what} from {host}")
        with (
            open(part, "ab" if start else "wb") as file,
            byte_progress(what, total, start) as advance,
        ):
            while chunk := _read(response):
                file.write(chunk)
                advance(len(chunk))
    if length and size_of(part) < total:
        raise ConnectionError(f"{format_bytes(size_of(part))} of {format_bytes(total)} came")


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read(_CHUNK))
    except OSError as error:  # the network's, not the disk's
        raise ConnectionError(str(error)) from error
