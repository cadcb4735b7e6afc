"""The decoded cache: what comes out, when it is decoded again, and damage of all sorts."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import threading
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused

from reality_check.data import ImageSet, decode_files, load_dataset
from reality_check.data.cache import _entry, decoded
from reality_check.data.cache._entry import Entry
from reality_check.data.image_files import ImageFiles
from reality_check.utils.errors import UsageError


def make_files(root: Path, count: int = 12, classes: int = 3, **fields: object) -> ImageFiles:
    """Noise images of different sizes, PNG so that what was saved is what is decoded."""
    paths = []
    for number in range(count):
        path = root / f"{number % classes}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels_of(number)).save(path)
        paths.append(path.relative_to(root).as_posix())
    labels = np.arange(count) % classes
    names = tuple(f"class {label}" for label in range(classes))
    return ImageFiles("toy", root, tuple(paths), labels, names, **fields)  # type: ignore[arg-type]


def pixels_of(number: int) -> np.ndarray:
    shape = (6 + number % 3, 9 - number % 4, 3)
    return np.random.default_rng(number).integers(0, 256, shape).astype(np.uint8)


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    return make_files(tmp_path / "toy")


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each image that is decoded."""
    calls: list[int] = []
    real = decoded.decode_image

    def counted(data: bytes, *rest: object) -> np.ndarray:
        calls.append(len(data))
        return real(data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(decoded, "decode_image", counted)
    return calls


def entry_of(cache: Path) -> Path:
    (entry,) = [folder for folder in cache.iterdir() if not folder.name.startswith(".")]
    return entry


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def test_every_image_is_as_it_was_saved(files: ImageFiles) -> None:
    data = decode_files(files, 8, resize="none")
    assert data.images.shape is None
    for number in range(len(files)):
        np.testing.assert_array_equal(data.images.image(number), pixels_of(number))
    np.testing.assert_array_equal(data.labels, files.labels)
    assert (data.class_names, data.name, data.skipped) == (files.class_names, "toy", ())
    assert data.test_classes is None
    assert data.queries is None


def test_the_official_split_is_handed_on(tmp_path: Path) -> None:
    queries = np.arange(12) % 2 == 0
    files = make_files(tmp_path, test_classes=(1, 2), queries=queries)
    data = decode_files(files, 4)
    assert data.test_classes == (1, 2)
    assert data.queries is not None
    np.testing.assert_array_equal(data.queries, queries)


def test_decoded_once_and_mapped_read_only(files: ImageFiles, decodings: list[int]) -> None:
    first = decode_files(files, 4)
    again = decode_files(files, 4)
    assert len(decodings) == 12
    assert isinstance(again.images.pixels, np.memmap)
    assert first.fingerprint() == again.fingerprint()
    with pytest.raises(ValueError, match="read-only"):
        again.images.pixels[0] = 1


def test_other_options_have_entries_of_their_own(
    files: ImageFiles, cache: Path, decodings: list[int]
) -> None:
    decode_files(files, 4)
    decode_files(files, 5)
    decode_files(files, 4, 1)
    decode_files(files, 4, resize="square")
    decode_files(files, 4, resize="none")
    assert len(left_in(cache)) == 5
    decode_files(files, 99, resize="none")  # where the size plays no part
    assert len(decodings) == 5 * 12


def test_a_changed_or_new_file_decodes_again(files: ImageFiles, decodings: list[int]) -> None:
    decode_files(files, 4)
    path = files.root / files.paths[3]
    os.utime(path, ns=(1, 1))
    decode_files(files, 4)
    assert len(decodings) == 24
    shutil.copy(path, files.root / "new.png")
    labels = np.append(files.labels, 0)
    more = ImageFiles("toy", files.root, (*files.paths, "new.png"), labels, files.class_names)
    assert len(decode_files(more, 4)) == 13
    assert len(decodings) == 37


def test_labels_are_not_part_of_the_entry(files: ImageFiles, decodings: list[int]) -> None:
    decode_files(files, 4)
    other = ImageFiles("toy", files.root, files.paths, 2 - files.labels, files.class_names)
    np.testing.assert_array_equal(decode_files(other, 4).labels, 2 - files.labels)
    assert len(decodings) == 12


def test_odd_names(tmp_path: Path) -> None:
    names = ["with space.png", "ünï çödé 漢字.png", "new\nline.png", "quote'\"%s{}.png", "-rf.png"]
    raw = os.fsdecode(b"not utf-8 \xff\xfe.png")
    for number, name in enumerate([*names, raw]):
        Image.fromarray(pixels_of(number)).save(tmp_path / name, "PNG")
    labels = np.zeros(len(names) + 1, np.int64)
    files = ImageFiles("odd / näme\n", tmp_path, (*names, raw), labels, ("a",))
    data = decode_files(files, 4, resize="none")
    for number in range(len(files)):
        np.testing.assert_array_equal(data.images.image(number), pixels_of(number))
    (tmp_path / raw).write_bytes(b"no image")
    with pytest.raises(UsageError, match="cannot be decoded") as caught:
        decode_files(files, 4)
    str(caught.value).encode()  # it can be printed
    with pytest.warns(UserWarning, match="Skipped 1 of 6"):
        data = decode_files(files, 4, on_broken="skip")
    data.skipped[0].encode()


# Broken files


def break_some(files: ImageFiles) -> None:
    whole = (files.root / files.paths[4]).read_bytes()
    (files.root / files.paths[4]).write_bytes(whole[:60])
    (files.root / files.paths[7]).write_bytes(b"")


def test_broken_images_are_named(files: ImageFiles) -> None:
    break_some(files)
    named = f"{files.paths[4]!r} of 'toy' cannot be decoded"
    with refused(named, "nor can 1 more", "on_broken: skip"):
        decode_files(files, 4)


def test_broken_images_are_skipped_on_demand(files: ImageFiles, decodings: list[int]) -> None:
    break_some(files)
    kept = [number for number in range(12) if number not in (4, 7)]
    for _ in range(2):  # decoded, and opened
        with pytest.warns(UserWarning, match="Skipped 2 of 12 images of 'toy'"):
            data = decode_files(files, 4, resize="none", on_broken="skip")
        np.testing.assert_array_equal(data.labels, files.labels[kept])
        for row, number in enumerate(kept):
            np.testing.assert_array_equal(data.images.image(row), pixels_of(number))
        assert [line.split(": ")[0] for line in data.skipped] == ["1/4.png", "1/7.png"]
        assert all(line.split(": ")[1] for line in data.skipped)
    with pytest.raises(UsageError, match=r"1/4\.png"):  # the cache does not hide them
        decode_files(files, 4, resize="none")
    assert len(decodings) == 12


def test_queries_lose_the_skipped_rows(tmp_path: Path) -> None:
    files = make_files(tmp_path, test_classes=(0, 1, 2), queries=np.arange(12) % 2 == 0)
    break_some(files)
    with pytest.warns(UserWarning, match="Skipped"):
        data = decode_files(files, 4, on_broken="skip")
    assert data.queries is not None
    assert data.queries.tolist() == [n % 2 == 0 for n in range(12) if n not in (4, 7)]


def test_a_class_without_a_whole_image_is_an_error(files: ImageFiles) -> None:
    for path in files.paths[1::3]:
        (files.root / path).write_bytes(b"x")
    with pytest.raises(UsageError, match="No image of the class 'class 1' of 'toy'"):
        decode_files(files, 4, on_broken="skip")


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("again", ["0/0.png", "./0/0.png", "hard", "soft", "by/0.png"])
def test_a_file_under_two_names_is_refused(files: ImageFiles, again: str, label: int) -> None:
    root = files.root
    os.link(root / "0/0.png", root / "hard")
    (root / "soft").symlink_to("0/0.png")
    (root / "by").symlink_to("0")
    paths, labels = (*files.paths, again), np.append(files.labels, label)
    twice = ImageFiles("toy", root, paths, labels, files.class_names)
    named = f"{again!r} (class 'class {label}') of 'toy' are one file"
    with refused("'0/0.png' (class 'class 0') and ", named, "link by a copy"):
        decode_files(twice, 4)


def test_a_member_of_a_zip_under_two_names_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        archive.writestr("a.png", b"x")
        archive.writestr("b.png", b"x")  # equal bytes are another matter
    (tmp_path / "link.zip").symlink_to("toy.zip")
    paths = ("toy.zip/b.png", "toy.zip/a.png", "link.zip/a.png")
    files = ImageFiles("toy", tmp_path, paths, np.arange(3), ("x", "y", "z"))
    with refused(
        "'toy.zip/a.png' (class 'y')", "'link.zip/a.png' (class 'z') of 'toy' are one file"
    ):
        decode_files(files, 4)


def test_missing_files(files: ImageFiles) -> None:
    (files.root / files.paths[2]).unlink()
    (files.root / files.paths[5]).unlink()
    with pytest.raises(UsageError, match=r"lists '2/2\.png' and 1 more files, but there is no"):
        decode_files(files, 4)
    with pytest.warns(UserWarning, match="Skipped"):
        data = decode_files(files, 4, on_broken="skip")
    assert data.skipped[0] == "2/2.png: there is no such file"
    assert len(data) == 10


def test_a_file_that_the_disk_does_not_give_is_not_taken_for_broken(
    files: ImageFiles, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, path: str) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("reality_check.data.cache._sources.Sources.read", fail)
        with pytest.raises(UsageError, match=r"cannot be read .*Input/output error"):
            decode_files(files, 4, on_broken="skip")
    assert left_in(cache) == []
    assert decode_files(files, 4, on_broken="skip").skipped == ()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP"])
def test_random_damage_never_escapes(tmp_path: Path, kind: str) -> None:
    """Whatever Pillow raises for a damaged file, the file counts as broken and is listed."""
    damage = random.Random(kind)
    Image.fromarray(pixels_of(0)).save(tmp_path / "whole", kind)
    content = (tmp_path / "whole").read_bytes()
    names = ["whole"]
    for number in range(40):
        damaged = bytearray(content)
        for _ in range(damage.randint(1, 8)):
            damaged[damage.randrange(len(damaged))] = damage.randrange(256)
        damaged = damaged[: damage.choice([len(damaged), damage.randrange(len(damaged))])]
        (tmp_path / f"{number}").write_bytes(damaged)
        names.append(f"{number}")
    files = ImageFiles("x", tmp_path, tuple(names), np.zeros(41, np.int64), ("a",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, too
        data = decode_files(files, 4, resize="square", on_broken="skip")
    assert 1 <= len(data) < 41
    assert len(data) + len(data.skipped) == 41


def test_a_damaged_member_of_a_zip_is_named(tmp_path: Path) -> None:
    files = make_files(tmp_path / "toy")
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        for path in files.paths:
            archive.write(files.root / path, path)
        info = archive.getinfo(files.paths[5])
    with open(tmp_path / "toy.zip", "r+b") as raw:
        raw.seek(info.header_offset + 30 + len(info.filename) + 20)
        raw.write(b"\0\0\0\0")
    paths = tuple(f"toy.zip/{path}" for path in files.paths)
    packed = ImageFiles("toy", tmp_path, paths, files.labels, files.class_names)
    with pytest.raises(UsageError, match=r"toy\.zip/2/5\.png.*CRC"):
        decode_files(packed, 4)
    with pytest.warns(UserWarning, match="Skipped 1 of 12"):
        data = decode_files(packed, 4, resize="none", on_broken="skip")
    np.testing.assert_array_equal(data.images.image(5), pixels_of(6))


# Damage in the cache


def test_damage_that_shows_at_once_decodes_again(
    files: ImageFiles, cache: Path, decodings: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    first = decode_files(files, 4).fingerprint()
    entry = entry_of(cache)
    for name in ("index.npz", "pixels.bin"):
        whole = (entry / name).read_bytes()
        for damage in (None, b"", b"\xff" * 40, whole[:-1], whole[:-99]):
            if damage is None:
                (entry / name).unlink()
            else:
                (entry / name).write_bytes(damage)
            assert decode_files(files, 4).fingerprint() == first
            assert "damaged" in capsys.readouterr().err
    assert len(decodings) == 12 * (1 + 2 * 5)
    assert left_in(cache) == [entry.name]


@pytest.mark.parametrize("position", [0, 300, -1])
def test_a_flipped_bit_is_found(
    files: ImageFiles, cache: Path, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = decode_files(files, 4).fingerprint()
    assert decode_files(files, 4, verify=True).fingerprint() == expected
    assert capsys.readouterr().err == ""
    file = entry_of(cache) / "pixels.bin"
    content = bytearray(file.read_bytes())
    content[position] ^= 4
    file.write_bytes(content)
    assert decode_files(files, 4).fingerprint() != expected  # opening does not read the pixels
    assert decode_files(files, 4, verify=True).fingerprint() == expected
    assert "'toy' in" in capsys.readouterr().err
    assert left_in(cache) == [file.parent.name]


def test_load_dataset_verifies_on_demand(files: ImageFiles, cache: Path) -> None:
    config = SimpleNamespace(
        reader="image_folder",
        path=str(files.root),
        size=4,
        channels=3,
        resize="square",
        on_broken="error",
    )
    expected = load_dataset(config).fingerprint()
    file = entry_of(cache) / "pixels.bin"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    assert load_dataset(config).fingerprint() != expected
    assert load_dataset(config, verify=True).fingerprint() == expected
    assert load_dataset(config).fingerprint() == expected


# Disks and leftovers


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    files: ImageFiles, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, *rest: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for where, method in ((_entry, "_write_images"), (os, "fsync")):
        with monkeypatch.context() as patch:
            patch.setattr(where, method, full)
            with pytest.raises(UsageError, match=r"disk is full.*REALITY_CHECK_CACHE") as caught:
                decode_files(files, 4)
            assert "\n" not in str(caught.value)
        assert left_in(cache) == []


def test_an_unwritable_cache_is_one_sentence(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match=r"cannot be written.*REALITY_CHECK_CACHE"):
        decode_files(files, 4)


def test_leftovers_of_killed_processes_are_removed(files: ImageFiles, cache: Path) -> None:
    """Those of this entry on this machine, and old ones; others may still be in use."""
    decode_files(files, 4)
    entry = entry_of(cache)
    shutil.rmtree(entry)
    names = (
        f".building-{entry.name}-{socket.gethostname()}",
        ".building-other-host-2",
        ".building-other-host-3",
    )
    for name in names:
        (cache / name).mkdir()
        (cache / name / "pixels.bin").write_bytes(b"x")
    os.utime(cache / names[1], (1e9, 1e9))
    decode_files(files, 4)
    assert left_in(cache) == [names[2], entry.name]


def test_an_interrupted_build_leaves_nothing(
    files: ImageFiles, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(decoded, "decode_image", interrupted)
        with pytest.raises(KeyboardInterrupt):
            decode_files(files, 4)
    assert left_in(cache) == []


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)


def decode_in_threads(files: ImageFiles, count: int) -> list[ImageSet]:
    found: list[ImageSet] = []
    threads = [
        threading.Thread(target=lambda: found.append(decode_files(files, 4))) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.usefixtures("no_locks")
def test_without_locks_several_build_and_agree(tmp_path: Path, cache: Path) -> None:
    found = decode_in_threads(make_files(tmp_path, count=100), 4)
    assert len({data.fingerprint() for data in found}) == 1
    assert len(found) == 4
    assert len(left_in(cache)) == 1


@pytest.mark.usefixtures("no_locks")
def test_without_locks_what_another_finishes_just_now_is_not_taken_for_damaged(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = make_files(tmp_path)
    openings: list[Path] = []
    open_entry = _entry.open_entry

    def open_just_before(folder: Path, verify: bool = False) -> Entry | None:
        openings.append(folder)
        if len(openings) == 2:  # once it holds what would be the lock
            entry = open_entry(folder, verify)
            decode_files(files, 4)
            return entry
        return open_entry(folder, verify)

    monkeypatch.setattr(_entry, "open_entry", open_just_before)
    data = decode_files(files, 4)
    assert len(data) == len(files)
    assert len(left_in(cache)) == 1
    assert "damaged" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 0}, "size=0"),
        ({"channels": 4}, "channels=4"),
        ({"on_broken": "ignore"}, "'error', 'skip'"),
        ({"resize": "shortside"}, "'short_side', 'square', 'none'"),
    ],
)
def test_refuses_options(files: ImageFiles, options: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        decode_files(files, **{"size": 4, **options})  # type: ignore[arg-type]
