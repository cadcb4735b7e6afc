"""``reality_check.utils.files``: a file is the old one or the whole new one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reality_check.utils.files import atomic_write


def test_text_is_utf8_with_its_own_line_ends(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a.txt", "95 % ± ü\r\nx\n")
    assert (tmp_path / "a.txt").read_bytes() == "95 % ± ü\r\nx\n".encode()


def test_bytes_replace_an_existing_file_and_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.bin"
    atomic_write(path, b"old")
    atomic_write(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["a.bin"]


def test_a_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    atomic_write(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_file_has_ordinary_permissions(tmp_path: Path) -> None:
    atomic_write(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_name_of_the_longest_length_works(tmp_path: Path) -> None:
    atomic_write(tmp_path / ("x" * 255), "x")
    assert (tmp_path / ("x" * 255)).read_text() == "x"


def test_many_writers_of_one_file_leave_one_whole_file(tmp_path: Path) -> None:
    contents = [str(i) * 50_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: atomic_write(tmp_path / "a", text), contents))
    assert (tmp_path / "a").read_text() in contents
    assert os.listdir(tmp_path) == ["a"]
