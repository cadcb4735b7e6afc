"""Download files, continuing after broken connections and kills, and check them."""

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
from reality_check.utils.byte_progress import byte_progress, format_bytes, size_of
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import say

#: An address is given up after this number of connections in a row without a new byte.
ATTEMPTS = 5
#: Seconds to wait before the second connection; the time doubles for each further one.
WAIT_SECONDS = 1.0
_TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 20
_NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    Args:
        name: the name that it is saved under.
        urls: its addresses, tried in this order; empty if it can only be downloaded in a browser.
        checksum: ``"md5:..."`` or ``"sha256:..."`` (hex); None only if there are no addresses.
    """

    name: str
    urls: tuple[str, ...] = ()
    checksum: str | None = None


def download(remote: RemoteFile, folder: Path) -> Path:
    """Download a file unless it exists; continue where an earlier call stopped. Return its path.

    The bytes are written to ``NAME.part``, which is renamed when its checksum is right. A second
    process that needs the same file waits for the first.

    Raises:
        UsageError: if no address gives the file, its checksum is wrong, or the folder cannot be
            written.
    """
    target = folder / remote.name

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / f".{remote.name}.lock"
        with locked(lock, f"downloads {str(target)!r}.", say) as has_lock:
            if target.is_file():
                check_file(target, remote)
            else:
                # Without locks, another process may be writing NAME.part.
                part = folder / f"{remote.name}{'' if has_lock else f'.{os.getpid()}'}.part"
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
    """Raise UsageError unless a file is the published one."""
    checksum = _checksum(path, remote)
    if checksum != remote.checksum:
        raise UsageError(
            f"{str(path)!r} is incomplete, damaged or another version: its checksum is {checksum}, "
            f"but {remote.checksum} is published; delete it and download it again, or, if you "
            "trust it, unpack it yourself."
        )


def _checksum(path: Path, remote: RemoteFile) -> str | None:
    """Return a file's checksum, by the algorithm of the published one; None if there is none."""
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
            _fetch_with_retries(url, part)
        except _NETWORK_ERRORS as error:
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


def _fetch_with_retries(url: str, part: Path) -> None:
    """Fetch all bytes; connect again until :data:`ATTEMPTS` connections in a row fail."""
    failures = 0
    while True:
        before = size_of(part)
        try:
            return _fetch_rest(url, part, before)
        except _NETWORK_ERRORS as error:
            # A connection that brought bytes starts the count anew.
            failures = failures + 1 if size_of(part) <= before else 1
            if failures == ATTEMPTS or _is_final(error):
                raise
        time.sleep(WAIT_SECONDS * 2 ** (failures - 1))


def _is_final(error: Exception) -> bool:
    """Return whether a retry cannot help: the server refuses, or there is no such server."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code < 500 and error.code not in (408, 429)
    return isinstance(getattr(error, "reason", None), socket.gaierror)


def _fetch_rest(url: str, part: Path, start: int) -> None:
    """Append the bytes of a file from the position ``start`` on to ``part``."""
    headers = {"User-Agent": f"reality-check/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # no bytes follow; the checksum is compared later
            return
        raise
    with response:
        start = start if response.status == 206 else 0  # some servers send the whole file again
        length = response.headers.get("Content-Length")
        total = start + int(length or 0)
        name, host = part.name.removesuffix(".part"), urllib.parse.urlsplit(url).hostname
        description = f"Downloading {name} ({format_bytes(total) if length else 'size unknown'})"
        say(f"{description} from {host}")
        with (
            open(part, "ab" if start else "wb") as file,
            byte_progress(description, total, start) as advance,
        ):
            while chunk := _read(response):
                file.write(chunk)
                advance(len(chunk))
    if length and size_of(part) < total:
        raise ConnectionError(f"{format_bytes(size_of(part))} of {format_bytes(total)} came")


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read(_CHUNK))
    except OSError as error:  # an error of the network, not of the disk
        raise ConnectionError(str(error)) from error
