"""One file over HTTP, continued where an earlier connection broke."""

from __future__ import annotations

import http.client
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from reality_check._version import __version__
from reality_check.data.cache._bytes import byte_progress, check_space, format_bytes, size_of
from reality_check.utils.progress_bar import say

#: Connections in a row that may break without a new byte before the address is given up.
ATTEMPTS = 5
#: Seconds to wait before the second connection; doubled for each further one.
WAIT_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0
_CHUNK = 1 << 18


class Unavailable(Exception):
    """An address does not give its file; the text says why."""


def fetch(url: str, part: Path, expected: int | None = None) -> None:
    """Fetch a file whole, connecting again as long as bytes come.

    Args:
        part: where it goes; the bytes that are there already are kept, if the server can continue
            from there.
        expected: bytes of the whole file, for the progress of servers that do not say.

    Raises:
        Unavailable: the server refuses, cannot be reached or breaks off again and again.
        OSError: the file cannot be written.
    """
    failed = 0
    while True:
        before = size_of(part)
        try:
            _fetch_rest(url, part, before, expected)
            return
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 429):
                raise Unavailable(problem) from error
        except urllib.error.URLError as error:
            problem = f"not reachable: {error.reason}"
            if isinstance(error.reason, socket.gaierror):  # no network, or no such host
                raise Unavailable(problem) from error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = f"the connection broke: {error or type(error).__name__}"
        failed = 1 if size_of(part) > before else failed + 1
        if failed >= ATTEMPTS:
            raise Unavailable(problem)
        time.sleep(WAIT_SECONDS * 2 ** (failed - 1))


def _fetch_rest(url: str, part: Path, start: int, expected: int | None) -> None:
    try:
        response = _open(url, start)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start:
            raise
        if _whole_length(error.headers) == start:  # all of it is here
            return
        part.unlink()
        response = _open(url, 0)
    with response:
        range_given = response.headers.get("Content-Range", "")
        done = start if range_given.startswith(f"bytes {start}-") else 0
        rest = response.headers.get("Content-Length", "")
        total = done + int(rest) if rest.isdigit() else expected or 0
        check_space(part.parent, total - done, f"Downloading {part.name.removesuffix('.part')}")
        _save(response, url, part, done, total)
    if rest and size_of(part) < total:
        raise ConnectionError(f"{format_bytes(size_of(part))} of {format_bytes(total)} came")


def _open(url: str, start: int) -> Any:
    headers = {"User-Agent": f"reality-check/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)


def _save(response: Any, url: str, part: Path, done: int, total: int) -> None:
    name = part.name.removesuffix(".part")
    have = f", {format_bytes(done)} of it already here" if done else ""
    size = format_bytes(total) if total else "of unknown size"
    say(f"Downloading {name} ({size}{have}) from {urllib.parse.urlsplit(url).hostname}")
    with (
        open(part, "ab" if done else "wb") as file,
        byte_progress(f"Downloading {name}", total, done) as advance,
    ):
        try:
            while chunk := _read(response):
                file.write(chunk)
                advance(len(chunk))
        finally:
            file.flush()
            os.fsync(file.fileno())


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read(_CHUNK))
    except OSError as error:  # the network's, not the disk's
        raise ConnectionError(str(error)) from error


def _whole_length(headers: Any) -> int | None:
    """The length in ``Content-Range: bytes */123``."""
    text = headers.get("Content-Range", "").rpartition("/")[2]
    return int(text) if text.isdigit() else None
