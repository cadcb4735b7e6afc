from __future__ import annotations

import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from reality_check.data.cache._sources import Sources, files_below
from reality_check.utils.errors import UsageError


def save_zip(file: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def test_reads_files_and_members_alike(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_bytes(b"plain")
    save_zip(tmp_path / "a" / "B.ZIP", {"c/y.txt": b"packed"})
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "folder.zip" / "z.txt").write_bytes(b"in a folder called .zip")
    save_zip(tmp_path / "folder.zip" / "deep.zip", {"w": b"deep"})
    with Sources(tmp_path) as sources:
        assert sources.read("a/x.txt") == b"plain"
        assert sources.read("a/B.ZIP/c/y.txt") == b"packed"
        assert sources.read("folder.zip/z.txt") == b"in a folder called .zip"
        assert sources.read("folder.zip/deep.zip/w") == b"deep"
        with pytest.raises(KeyError):
            sources.read("a/B.ZIP/c/absent.txt")
        with pytest.raises(FileNotFoundError):
            sources.read("absent.txt")


def test_many_threads_read_one_archive(tmp_path: Path) -> None:
    members = {f"{n}.bin": bytes([n]) * (1000 * n) for n in range(40)}
    save_zip(tmp_path / "x.zip", members)
    with Sources(tmp_path) as sources, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(sources.read, [f"x.zip/{name}" for name in members] * 5))
    assert found == list(members.values()) * 5


def test_stamps_change_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    os.utime(file, ns=(7, 7))
    save_zip(tmp_path / "y.zip", {"m": b"abc", "n": b"abd"})
    with Sources(tmp_path) as sources:
        found = sources.stamps(["x", "absent", "y.zip/m", "y.zip/n", "y.zip/absent"])
    assert found.dtype == np.int64
    assert found[:2].tolist() == [[5, 7], [-1, -1]]
    assert found[2].tolist() == [3, 0x352441C2]  # CRC-32 of "abc"
    assert found[3, 1] != found[2, 1]
    assert found[4].tolist() == [-1, -1]
    save_zip(tmp_path / "y.zip", {"m": b"changed"})
    with Sources(tmp_path) as sources:
        assert sources.stamps(["y.zip/m"])[0, 0] == 7
        assert sources.stamps([]).shape == (0, 2)


def test_files_below(tmp_path: Path) -> None:
    names = ["a/1.png", "a/b c/2.png", "3.png"]
    hidden = [".x/4.png", "a/.5.png", "__MACOSX/a/1.png"]
    for name in [*names, *hidden[:2]]:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"x")
    assert sorted(files_below(tmp_path / "tree")) == sorted(names)
    file = save_zip(tmp_path / "t.zip", dict.fromkeys([*names, *hidden, "/abs.png"], b"x"))
    assert sorted(files_below(file)) == sorted(names)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    whole = save_zip(tmp_path / "x.zip", {"a": b"1"}).read_bytes()
    (tmp_path / "x.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"x\.zip.*cannot be read as a \.zip"):
        files_below(tmp_path / "x.zip")
