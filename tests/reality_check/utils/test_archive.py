"""Sealed archives: whole and unchanged, or refused in one sentence."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from reality_check.utils import archive
from reality_check.utils.archive import seal, unseal
from reality_check.utils.errors import UsageError

ABOUT = {"schema": "mine", "version": 1, "words": "ä"}
FILES = {"b/two.png": b"\x00" * 5000, "a.json": b"[1, 2, 3]" * 100}


def test_what_is_sealed_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.pack"
    path.write_bytes(seal(ABOUT, FILES))
    archive = unseal(path, "mine")
    assert archive.files == FILES
    assert {key: archive.about[key] for key in ABOUT} == ABOUT
    assert path.read_bytes() == seal(ABOUT, dict(reversed(FILES.items())))
    with zipfile.ZipFile(path) as whole:
        assert {info.date_time[0] for info in whole.infolist()} == {1980}, "no time of writing"
    assert len(path.read_bytes()) < 5000 + 1500, "what is not compressed yet is"


def rezipped(content: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive with other files, whose checksums in the zip itself are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        files = {name: old.read(name) for name in old.namelist()}
    change(files)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as new:
        for name, text in files.items():
            new.writestr(name, text)
    return stream.getvalue()


def replace(name: str, old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return lambda content: rezipped(content, change)


def duplicated(content: bytes) -> bytes:
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as again, pytest.warns(UserWarning, match="Duplicate"):
        again.writestr("a.json", b"other")
    return stream.getvalue()


def flipped(content: bytes) -> bytes:
    offset = content.index(b"\x00" * 4000) + 100
    return content[:offset] + b"\x01" + content[offset + 1 :]


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a file changed": (replace("a.json", b"1", b"9"), "was changed after it was written: a.json"),
    "what it says changed": (replace("pack.json", b"\xc3\xa4", b"b"), "was changed .* pack.json"),
    "a byte flipped": (flipped, "is no whole pack .*Bad CRC-32"),
    "cut off": (lambda content: content[:-40], "is no whole pack .*BadZipFile"),
    "cut to the half": (lambda content: content[: len(content) // 2], "is no whole pack"),
    "empty": (lambda content: b"", "is no whole pack"),
    "text": (lambda content: b"name: x", "is no whole pack"),
    "another zip": (lambda _: rezipped(seal({}, {}), dict.clear), "is a zip file but no pack"),
    "not JSON": (replace("pack.json", b"{", b"<"), "is no whole pack"),
    "a list": (
        lambda c: rezipped(c, lambda f: f.update({"pack.json": b"[]"})),
        "is a zip file but no pack",
    ),
    "deep": (
        lambda c: rezipped(c, lambda f: f.update({"pack.json": b"[" * 100_000})),
        "is no whole pack",
    ),
    "a file more": (
        lambda c: rezipped(c, lambda f: f.update({"c": b""})),
        "holds other files than it lists .'c'.",
    ),
    "a file less": (
        lambda c: rezipped(c, lambda f: f.pop("a.json") and None),
        "holds other files than it lists .'a.json'.",
    ),
    "two of one name": (duplicated, "holds other files than it lists .'a.json'."),
    "another schema": (lambda _: seal({**ABOUT, "schema": "no"}, FILES), "but no pack"),
    "newer": (
        lambda _: seal({**ABOUT, "version": 2}, FILES),
        "version of the pack is 2, which a newer reality-check wrote: .* --upgrade pml-extensions",
    ),
    "no version": (lambda _: seal({"schema": "mine"}, FILES), "is None, but can only be 1"),
    **{
        f"path {name}": (lambda _, name=name: seal(ABOUT, {name: b""}), re.escape(repr(name)))
        for name in ("../up", "/etc/x", "a//b", "a/../b", ".hidden", "C:/x", "a\\b", "a/", "x\n")
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", BAD)
def test_what_is_not_as_it_was_sealed_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.pack"
    change, words = BAD[kind]
    path.write_bytes(change(seal(ABOUT, FILES)))
    with pytest.raises(UsageError, match=words) as caught:
        unseal(path, "mine")
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_unpacks_to_too_much_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.pack"
    inner = io.BytesIO()
    np.savez_compressed(inner, zeros=np.zeros(3_000_000, np.uint8))
    monkeypatch.setattr(archive, "MOST_BYTES", 2_000_000)
    path.write_bytes(seal(ABOUT, {"x.npz": inner.getvalue()}))
    with pytest.raises(UsageError, match=r"would unpack to 3 MB in 1 files, more than any pack"):
        unseal(path, "mine")
    path.write_bytes(seal(ABOUT, {"zeros": bytes(3_000_000)}))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it is read"))
    with pytest.raises(UsageError, match=r"would unpack to 3 MB in 2 files, more than any pack"):
        unseal(path, "mine")


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    with pytest.raises(UsageError, match=re.escape(f"there is no {path}; name a pack or an out")):
        unseal(path, "mine")
    with pytest.raises(UsageError, match="is no whole pack"):
        unseal(tmp_path, "mine")
