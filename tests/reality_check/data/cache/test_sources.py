from __future__ import annotations

import errno
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from reality_check.data.cache._sources import Sources, images_below
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
    assert found[:2, :2].tolist() == [[5, 7], [-1, -1]]
    assert found[2, :2].tolist() == [3, 0x352441C2]  # CRC-32 of "abc"
    assert found[3, 1] != found[2, 1]
    assert found[4, :2].tolist() == [-1, -1]
    save_zip(tmp_path / "y.zip", {"m": b"changed"})
    with Sources(tmp_path) as sources:
        assert sources.stamps(["y.zip/m"])[0, 0] == 7
        assert sources.stamps([]).shape == (0, 3)


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def test_images_below_a_folder_and_in_a_zip_file(tmp_path: Path) -> None:
    """Nothing is read of clutter at any depth and of this tool's output, and it is said."""
    images = ["a/1.png", "a/b c/2.JFIF", "runs/3.jp2", "runs/my/4.webp", "@/5.tga"]
    other = [
        "loose.png",
        "readme.txt",
        ".DS_Store",
        "a/.6.png",
        "a/7.txt",
        "a/8.eps",
        "a/9.mp4",
        "a/none",
    ]
    clutter = ["a/@eaDir/10.png", "__MACOSX/a/11.png", "a/$Recycle.Bin/12.png", "a/.git/x/13.png"]
    output = ["runs/x/experiment.yaml", "runs/x/figures/14.png", "run/experiment.yaml", "run/1.png"]
    names = [*images, *other, *clutter, *output]
    packed = save_zip(tmp_path / "t.zip", dict.fromkeys([*names, "/abs.png"], b"x"))
    for place in (touch(tmp_path / "tree", *names), packed):
        with pytest.warns(UserWarning, match="Not read") as caught:
            assert sorted(images_below(place)) == sorted(images)
        (warning,) = [str(one.message) for one in caught]
        for said in (
            *(".txt (1)", ".eps (1)", ".mp4 (1)", "no ending (1)", "hidden files (1)"),
            *("@eaDir/ (1)", "__MACOSX/ (1)", "$Recycle.Bin/ (1)", ".git/ (1)"),
            *("runs/x/ (2)", "run/ (2)", ".png outside the sub-folders (1)"),
        ):
            assert said in warning


@pytest.mark.filterwarnings("error")
def test_nothing_is_said_of_an_ordinary_folder(tmp_path: Path) -> None:
    names = ["a/1.png", "b/c/2.jpg"]
    root = touch(tmp_path / "tree", *names, "readme.txt")
    (root / "d").symlink_to(touch(tmp_path / "x", "3.gif"))
    assert sorted(images_below(root)) == [*names, "d/3.gif"]


@pytest.mark.parametrize(
    ("link", "target", "first"),
    [
        ("a/up", ".", "a folder above it"),
        ("a/up", "tree", "."),
        ("a/in/up", "tree/a", "a"),
        ("A/x", "tree/a", "a"),  # what is really there comes first
        ("b", "tree/a", "a"),
        ("c/x", "elsewhere", "a/there"),
    ],
)
def test_no_folder_is_entered_twice(tmp_path: Path, link: str, target: str, first: str) -> None:
    images = ["a/1.png", "a/there/2.png", "c/3.png"]
    root = touch(tmp_path / "tree", *images[::2])
    (root / "a" / "there").symlink_to(touch(tmp_path / "elsewhere", "2.png"))
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(tmp_path / target)
    with pytest.warns(UserWarning, match=rf"Not read .*: {link}/, which is {first}/ \(1\)"):
        assert sorted(images_below(root)) == images


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, scandir = touch(tmp_path, "a/1.png", "b/2.png"), os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("b"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError, match=r"b' cannot be read \(Permission denied\)"):
        images_below(root)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    whole = save_zip(tmp_path / "x.zip", {"a": b"1"}).read_bytes()
    (tmp_path / "x.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"x\.zip.*cannot be read as a \.zip"):
        images_below(tmp_path / "x.zip")
