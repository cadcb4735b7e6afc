from __future__ import annotations

import contextlib
import io
import os
import signal
import tarfile
import zipfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from reality_check.data.readers import _archives
from reality_check.data.readers._archives import unpack
from reality_check.utils.errors import UsageError

FILES = {"set/a.txt": b"first", "set/deep/b ü.bin": bytes(range(256)) * 40, "readme": b""}


def make(archive: Path, files: dict[str, bytes]) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                info = zipfile.ZipInfo(name, (2011, 10, 12, 13, 14, 16))
                packed.writestr(info, content)
    else:
        with tarfile.open(archive, "w:" + archive.suffix.strip(".").replace("tgz", "gz")) as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(content), 1_318_418_056
                tar.addfile(member, io.BytesIO(content))
    return archive


def content(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("kind", ["a.zip", "a.tgz", "a.tar.bz2", "a.tar.xz"])
def test_all_files_are_unpacked(tmp_path: Path, kind: str) -> None:
    archive = make(tmp_path / kind, FILES)
    folder = tmp_path / "out"
    folder.mkdir()
    unpack(archive, folder)
    assert content(folder) == FILES
    assert archive.exists()


def test_folders_and_finders_notes(tmp_path: Path) -> None:
    archive = make(tmp_path / "a.zip", {"set/": b"", "set/x/": b"", "__MACOSX/._set": b"x"})
    unpack(archive, tmp_path)
    assert (tmp_path / "set" / "x").is_dir()
    assert not (tmp_path / "__MACOSX").exists()


def test_what_is_there_is_added_to(tmp_path: Path) -> None:
    (tmp_path / "set" / "deep").mkdir(parents=True)
    (tmp_path / "set" / "own.txt").write_bytes(b"mine")
    (tmp_path / "set" / "a.txt").write_bytes(b"fi")  # cut short
    (tmp_path / ".unpacking-of-a-killed-process").mkdir()
    archive = make(tmp_path / "a.tgz", FILES)
    unpack(archive, tmp_path)
    found = content(tmp_path)
    del found["a.tgz"]
    assert found == {**FILES, "set/own.txt": b"mine"}
    assert not list(tmp_path.glob(".unpacking*"))


@pytest.mark.parametrize("kind", ["a.zip", "a.tgz"])
@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/tmp/evil-of-the-tests"])
def test_nothing_is_written_outside_the_folder(tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / "in" / "out"
    folder.mkdir(parents=True)
    archive = make(tmp_path / kind, {"good": b"x", name: b"evil"})
    with contextlib.suppress(UsageError):  # a tar file is refused, a zip file's path is cut
        unpack(archive, folder)
    assert not [path for path in content(tmp_path / "in") if not path.startswith("out/")]
    assert not os.path.lexists("/tmp/evil-of-the-tests")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_that_lead_out_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(UsageError, match="not the official one"):
        unpack(tmp_path / "a.tar", tmp_path)
    assert content(tmp_path).keys() == {"a.tar"}


def test_a_password_is_asked_for(tmp_path: Path) -> None:
    archive = make(tmp_path / "a.zip", {"x": b"12345"})
    raw = bytearray(archive.read_bytes())
    raw[6] |= 1  # flag of the file's own header, and of the directory
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(raw)
    with pytest.raises(UsageError, match="password required"):
        unpack(archive, tmp_path)


@pytest.mark.parametrize("kind", ["a.zip", "a.tgz", "a.tar.xz", "a.tar.bz2"])
@pytest.mark.parametrize("damage", ["short", "flipped", "html", "empty"])
def test_damaged_archives_are_refused(tmp_path: Path, kind: str, damage: str) -> None:
    noise = os.urandom(200_000)
    archive = make(tmp_path / kind, {"set/noise": noise, "set/more": noise[::-1]})
    raw = bytearray(archive.read_bytes())
    raw[100_000] ^= 255
    changed = {
        "short": archive.read_bytes()[:150_000],
        "flipped": bytes(raw),
        "html": b"<html>Sign in</html>",
        "empty": b"",
    }
    archive.write_bytes(changed[damage])
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(UsageError, match=r"cannot be unpacked .*download it again"):
        unpack(archive, folder)
    assert list(folder.iterdir()) == []


def test_a_damaged_header_is_found(tmp_path: Path) -> None:
    archive = make(tmp_path / "a.tar", {"x": b"1" * 600, "y": b"2" * 600})
    raw = bytearray(archive.read_bytes())
    raw[3 * 512 + 150] ^= 8  # in the checksum of the second file's header
    archive.write_bytes(raw)
    with pytest.raises(UsageError, match="header of a file in it is damaged"):
        unpack(archive, tmp_path)


def test_a_full_disk_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make(tmp_path / "a.zip", FILES)
    folder = tmp_path / "out"
    folder.mkdir()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_archives.shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space left on device"):  # the caller says it
            unpack(archive, folder)
    assert list(folder.iterdir()) == []


def unpack_and_die(archive: Path, folder: Path) -> None:
    copied: list[str] = []

    extract = tarfile.TarFile.extract

    def extract_and_die(*arguments: Any, **options: Any) -> None:
        extract(*arguments, **options)
        copied.append("one")
        if len(copied) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    tarfile.TarFile.extract = extract_and_die  # type: ignore[method-assign]
    unpack(archive, folder)


def test_a_killed_process_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    archive = make(tmp_path / "a.tgz", FILES)
    folder = tmp_path / "out"
    folder.mkdir()
    process = get_context("fork").Process(target=unpack_and_die, args=(archive, folder))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == []
    assert len(list(folder.iterdir())) == 1
    unpack(archive, folder)
    assert content(folder) == FILES
