"""Finding a data set, unpacking and fetching it, and what is said without it."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from support.file_server import served

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers import _published
from reality_check.data.readers._archives import unpack
from reality_check.data.readers._published import PublishedDataset, compare_counts, locate
from reality_check.data.readers.cars196 import CARS196
from reality_check.data.readers.cub200 import CUB200
from reality_check.data.readers.in_shop import IN_SHOP
from reality_check.data.readers.omniglot import OMNIGLOT
from reality_check.data.readers.stanford_online_products import ONLINE_PRODUCTS
from reality_check.utils.config_files import config_files
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

PETS = PublishedDataset(
    title="Pets-3",
    experiment="pets_mlrc",
    folder="pets",
    layouts=(("list.txt", "images|img"), ("other.mat", "more.mat", "photos")),
    archives=(RemoteFile("pets.zip"), RemoteFile("extra.zip")),
    source="pets.zip from https://pets.example",
    counts={"classes": 3, "images": 1200},
    list_root=lambda root: ImageFiles("pets", root, ("a.jpg",), np.zeros(1, np.int64), ("a",)),
)


def pets(root: Path, images: str = "images") -> Path:
    (root / images).mkdir(parents=True)
    (root / "list.txt").write_text("1 a.jpg")
    return root


def packed(archive: Path, folder: str = "pets/") -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{folder}list.txt", "1 a.jpg")
        file.writestr(f"{folder}images/a.jpg", b"pixels")
    return archive


@pytest.mark.parametrize("published", [CARS196, CUB200, IN_SHOP, OMNIGLOT, ONLINE_PRODUCTS])
def test_without_data_the_message_says_what_to_do(
    tmp_path: Path, published: PublishedDataset
) -> None:
    fetched = published in (CUB200, OMNIGLOT, ONLINE_PRODUCTS)
    with pytest.raises(UsageError) as error:
        published.list_files(tmp_path)
    message = str(error.value)
    command = f"reality-check run {published.experiment} dataset.path=/my/{published.folder}"
    for part in (command, f"download {published.source}", "https://", f"into {str(tmp_path)!r}"):
        assert part in message
    assert ("add dataset.download=true" in message) == fetched
    assert published.experiment in config_files("experiments")
    for archive in published.archives:
        assert archive.checksum is not None or not archive.urls


def test_the_root_itself_is_preferred_to_a_folder_in_it(tmp_path: Path) -> None:
    root = pets(tmp_path / "root")
    pets(root / "copy", "img")
    assert locate(root, PETS) == root
    (root / "list.txt").unlink()
    assert locate(root, PETS) == root / "copy"


def test_two_in_one_folder_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", ".c"):
        pets(tmp_path / name)
    with pytest.raises(UsageError, match=r"lies twice .* in 'a' and in 'b'; write dataset\.path="):
        locate(tmp_path, PETS)


def test_variables_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pets(tmp_path / "pets")
    monkeypatch.setenv("PETS_TEST", str(tmp_path))
    assert locate("${PETS_TEST}/pets", PETS) == root
    with pytest.raises(UsageError, match=r"PETS_TES, which is not set.*put it into a folder"):
        locate("${PETS_TES}/pets", PETS)


@pytest.mark.parametrize(
    ("there", "text"),
    [
        ((), r"The folder '.*' does not hold Pets-3\. If you have Pets-3, name its folder:"),
        (("list.txt",), r"Pets-3 in '.*' lacks images\."),
        (("images",), r"Pets-3 in '.*' lacks list\.txt\."),
        (("deep/photos", "deep/more.mat"), r"Pets-3 in '.*/deep' lacks other\.mat\."),
        (("photos", "images", "more.mat"), r"Pets-3 in '.*' lacks other\.mat\."),
    ],
)
def test_what_is_lacking(tmp_path: Path, there: tuple[str, ...], text: str) -> None:
    for name in there:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=text):
        locate(tmp_path, PETS)


def test_an_archive_is_unpacked_as_far_as_needed(tmp_path: Path) -> None:
    packed(tmp_path / "pets.zip")
    packed(tmp_path / "extra.zip", "extra/")
    assert locate(tmp_path / "pets.zip", PETS) == tmp_path / "pets"
    assert not (tmp_path / "extra").exists()
    assert (tmp_path / "pets.zip").exists()


def test_an_archive_without_a_folder_of_its_own(tmp_path: Path) -> None:
    packed(tmp_path / "pets.zip", "")
    assert locate(tmp_path, PETS) == tmp_path


def test_the_wrong_archive_is_refused_or_said(tmp_path: Path) -> None:
    packed(tmp_path / "pets.zip", "cats/dogs/")
    with pytest.raises(UsageError, match="does not hold Pets-3"):
        locate(tmp_path, PETS)
    assert [path.name for path in tmp_path.iterdir()] == ["pets.zip"]  # somebody else's
    checked = replace(PETS, archives=(RemoteFile("pets.zip", (), "md5:00"),))
    with pytest.raises(UsageError, match=r"its checksum is md5:\w{32}, but md5:00 is published"):
        locate(tmp_path, checked)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(tmp_path / "pets.zip")

    def read_only(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_published, "locked", read_only)
    with pytest.raises(
        UsageError, match=r"cannot be unpacked in .*\(Permission denied\); unpack it"
    ):
        locate(tmp_path, PETS)


def test_many_processes_unpack_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path.with_suffix(".log")

    def logged(archive: Path, folder: Path) -> None:
        with open(log, "a") as file:
            file.write(f"{archive.name}\n")
        unpack(archive, folder)

    monkeypatch.setattr(_published, "unpack", logged)
    archive = packed(tmp_path / "pets.zip")
    with zipfile.ZipFile(archive, "a") as file:
        for number in range(2000):
            file.writestr(f"pets/images/{number}.jpg", b"x" * 2000)
    fork = get_context("fork")
    processes = [fork.Process(target=locate, args=(tmp_path, PETS)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "pets.zip\n"
    assert len(list((tmp_path / "pets" / "images").iterdir())) == 2001
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets", "pets.zip"]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of pets.zip on a server here."""
    packed(tmp_path / "server" / "pets.zip")
    monkeypatch.setenv("no_proxy", "*")
    with served(tmp_path / "server") as address:
        yield f"{address}/pets.zip"


def test_what_is_missing_is_fetched_if_asked_for(tmp_path: Path, url: str) -> None:
    checksum = "md5:" + hashlib.md5((tmp_path / "server" / "pets.zip").read_bytes()).hexdigest()
    fetched = replace(PETS, archives=(RemoteFile("pets.zip", (url,), checksum),))
    folder = tmp_path / "new" / "pets3"
    with pytest.raises(UsageError, match=r"If not, add dataset\.download=true, or download pets"):
        locate(folder, fetched)
    assert not folder.exists()
    assert locate(folder, fetched, fetch=True) == folder / "pets"
    assert (folder / "pets" / "images" / "a.jpg").read_bytes() == b"pixels"
    assert locate(folder, fetched, fetch=True) == folder / "pets"


def test_counts(tmp_path: Path) -> None:
    def files(images: int) -> ImageFiles:
        labels = np.arange(images) % 3
        return ImageFiles("pets", tmp_path, ("a.jpg",) * images, labels, ("a", "b", "c"))

    compare_counts(files(1200), PETS)
    with pytest.raises(UsageError) as error:
        compare_counts(files(1100), PETS)
    assert str(error.value) == (
        f"Pets-3 in {str(tmp_path)!r} has 1,100 images, but 1,200 images are published: it is "
        "incomplete or another version. Download and unpack it again, or, if it is meant to be a "
        "part of it, write dataset.check_counts=false."
    )
