from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from reality_check.utils import download as _download
from reality_check.utils import locks as _locks
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

CONTENT = random.Random(0).randbytes(3_000_000)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Gives CONTENT; its attributes make it behave badly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges = True  # whether it understands Range
        self.breaks_after: list[int] = []  # bytes after which the next connections break
        self.status: list[int] = []  # statuses of the next answers, instead of the file
        self.tells_length = True
        self.pause = 0.0  # seconds between two pieces
        self.requests: list[str | None] = []  # the Range of each request

    def url(self, name: str = "x.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}?download=1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        if server.status:
            self.send_error(server.status.pop(0))
            return
        start = int(asked.split("=")[1].rstrip("-")) if asked and server.ranges else 0
        whole = len(server.content)
        if start >= whole:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{whole}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        if server.tells_length:
            self.send_header("Content-Length", str(whole - start))
        self.end_headers()
        end = start + server.breaks_after.pop(0) if server.breaks_after else whole
        for position in range(start, end, 100_000):
            self.wfile.write(server.content[position : min(position + 100_000, end)])
            time.sleep(server.pause)

    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the other side was killed
            super().handle()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("no_proxy", "*")


def remote(*urls: str, checksum: str = MD5) -> RemoteFile:
    return RemoteFile("x.bin", urls, checksum)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_file_is_fetched_once(
    tmp_path: Path, server: Server, checksum: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        path = _download.download(remote(server.url(), checksum=checksum), folder)
        assert path == folder / "x.bin"
        assert path.read_bytes() == CONTENT
    assert server.requests == [None]
    assert names(folder) == ["x.bin"]
    assert capfd.readouterr().err == "Downloading x.bin (3 MB) from 127.0.0.1\n"


def test_connections_that_bring_bytes_are_not_counted(tmp_path: Path, server: Server) -> None:
    server.breaks_after = [200_000] * (2 * _download.ATTEMPTS)
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again(tmp_path: Path, server: Server) -> None:
    server.ranges = False
    server.breaks_after = [1_000_000]
    path = _download.download(remote(server.url()), tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000000-"]


def test_a_server_that_tells_no_length(tmp_path: Path, server: Server) -> None:
    server.tells_length = False
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_whole_needs_no_bytes(tmp_path: Path, server: Server) -> None:
    (tmp_path / "x.bin.part").write_bytes(CONTENT)
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert server.requests == [f"bytes={len(CONTENT)}-"]


def test_a_part_that_is_too_long_or_wrong_is_thrown_away(tmp_path: Path, server: Server) -> None:
    for wrong in (CONTENT + b"more", b"another file" + CONTENT[:900_000]):
        (tmp_path / "x.bin.part").write_bytes(wrong)
        with pytest.raises(UsageError, match=rf"checksum is md5:\w+, but {MD5} is published"):
            _download.download(remote(server.url()), tmp_path)
        path = _download.download(remote(server.url()), tmp_path)
        assert path.read_bytes() == CONTENT
        assert server.requests[-1] is None
        path.unlink()


def test_a_wrong_checksum_is_said_and_the_file_removed(tmp_path: Path, server: Server) -> None:
    server.content = b"<html>Please sign in</html>"
    found = hashlib.md5(server.content).hexdigest()
    pattern = rf"its checksum is md5:{found}, but {MD5} is published"
    with pytest.raises(UsageError, match=pattern):
        _download.download(remote(server.url()), tmp_path)
    assert names(tmp_path) == []


def test_the_next_address_is_tried(tmp_path: Path, server: Server) -> None:
    server.status = [404]
    path = _download.download(remote(server.url("gone"), server.url()), tmp_path)
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_an_error_names_all_addresses(tmp_path: Path, server: Server) -> None:
    server.status = [404, *[503] * _download.ATTEMPTS]
    with pytest.raises(UsageError) as error:
        _download.download(remote(server.url("a"), server.url("b")), tmp_path)
    message = str(error.value)
    assert re.search(
        r"x\.bin could not be downloaded: http://\S+/a\S* \(HTTP Error 404: Not Found\)", message
    )
    assert re.search(r"/b\S* \(HTTP Error 503: ", message)
    assert f"put it into {str(tmp_path)!r}" in message
    assert len(server.requests) == 1 + _download.ATTEMPTS


def test_a_busy_server_is_asked_again(tmp_path: Path, server: Server) -> None:
    server.status = [503, 429, 500]
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_a_server_that_breaks_off_for_good(tmp_path: Path, server: Server) -> None:
    server.breaks_after = [1_000_000, *[0] * _download.ATTEMPTS]
    with pytest.raises(UsageError, match=r"1 MB of 3 MB came\).*run again \(1 MB are kept\)"):
        _download.download(remote(server.url()), tmp_path)
    assert names(tmp_path) == ["x.bin.part"]
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert server.requests[-1] == "bytes=1000000-"


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []

    def offline(*arguments: object, **_: object) -> None:
        looked_up.append(arguments)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    with pytest.raises(UsageError, match=r"name resolution.*another machine"):
        _download.download(remote("https://data.example/x.bin"), tmp_path)
    assert len(looked_up) == 1
    assert names(tmp_path) == []


def test_a_file_of_ones_own_is_checked_but_never_removed(tmp_path: Path, server: Server) -> None:
    (tmp_path / "x.bin").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"x\.bin' is incomplete, damaged or another version"):
        _download.download(remote(server.url()), tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == b"mine"
    assert server.requests == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, server: Server) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be downloaded into .*name another folder"):
        _download.download(remote(server.url()), tmp_path / "file")


def test_a_full_disk(tmp_path: Path, server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))  # fails as a full disk does
    try:
        with pytest.raises(UsageError, match=r"\(File too large\); make room or name another"):
            _download.download(remote(server.url()), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT


def test_a_killed_download_goes_on(tmp_path: Path, server: Server) -> None:
    server.pause = 0.05
    arguments = (remote(server.url()), tmp_path)
    process = get_context("fork").Process(target=_download.download, args=arguments)
    process.start()
    part = tmp_path / "x.bin.part"
    while not part.exists() or part.stat().st_size < 500_000:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    kept = part.stat().st_size
    server.pause = 0.0
    assert _download.download(*arguments).read_bytes() == CONTENT
    assert server.requests == [None, f"bytes={kept}-"]
    assert names(tmp_path) == ["x.bin"]


def test_two_processes_fetch_it_once(tmp_path: Path, server: Server) -> None:
    server.pause = 0.01
    fork = get_context("fork")
    arguments = (remote(server.url()), tmp_path)
    processes = [fork.Process(target=_download.download, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert server.requests == [None]
    assert (tmp_path / "x.bin").read_bytes() == CONTENT


def test_without_locks_two_do_not_write_one_file(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_locks, "_lock", lambda *_: False)
    (tmp_path / "x.bin.part").write_bytes(b"what another process is writing")
    assert _download.download(remote(server.url()), tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["x.bin", "x.bin.part"]
