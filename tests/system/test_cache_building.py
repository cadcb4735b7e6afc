"""Several processes at one entry of the cache, killed and starved of disk space."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.cache_builders import HELD, build, draw_glyphs
from support.pace import slowness, wait_until
from support.preloaded import Started

from reality_check.data import ImageSet, decode_files, list_image_folder, make_glyphs

COUNT = 60


class Builder:
    """A process that decodes, stopped after HELD images until it is released."""

    def __init__(self, folder: Path, place: Path, held: bool, limit: int) -> None:
        self.log, self.hold = place.with_suffix(".log"), place.with_suffix(".hold")
        if held:
            self.hold.touch()
        words = map(str, (folder, self.log, self.hold, limit))
        said = place.with_suffix(".said")
        self.process = Started(folder, said, *words, program=build, spares=0)

    def decoded(self) -> int:
        """Number of images that it decoded itself."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def wait_until_held(self) -> None:
        wait_until(lambda: self.decoded() >= HELD, 100, self._check)

    def wait_until_waiting(self) -> None:
        wait_until(lambda: "Waiting for process" in self.process.complaints(), 100, self._check)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> tuple[str, str]:
        self.hold.unlink(missing_ok=True)
        self.process.wait(timeout=100 * slowness())
        return self.process.said().strip(), self.process.complaints()

    def _check(self) -> None:
        assert self.process.poll() is None, self.process.complaints()


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache folder of its own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number in range(COUNT):
        path = root / f"class {number % 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (8 + number % 5, 10, 3)
        pixels = np.random.default_rng(number).integers(0, 256, shape).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    return root


@pytest.fixture
def expected(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The fingerprint of an undisturbed decoding in another cache folder."""
    with monkeypatch.context() as patch:
        patch.setenv("REALITY_CHECK_CACHE", str(tmp_path_factory.mktemp("undisturbed")))
        return read(folder).fingerprint()


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Callable[..., Builder]]:
    """Starts builders of ``folder``; those that still run at the end are killed."""
    builders: list[Builder] = []

    def launch(held: bool = False, limit: int = 0) -> Builder:
        builders.append(Builder(folder, tmp_path / f"builder{len(builders)}", held, limit))
        return builders[-1]

    yield launch
    for builder in builders:
        builder.kill()


def read(folder: Path) -> ImageSet:
    return decode_files(list_image_folder(folder), 8)


def entries(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.startswith("decoded-")]


def test_of_two_processes_one_decodes_and_the_other_waits(
    cache: Path, expected: str, start: Callable[..., Builder]
) -> None:
    first = start(held=True)
    first.wait_until_held()
    second = start()
    second.wait_until_waiting()
    for builder in (first, second):
        out, err = builder.finish()
        assert out == expected, err
    assert (first.decoded(), second.decoded()) == (COUNT, 0)
    assert os.listdir(cache) == entries(cache)
    assert len(entries(cache)) == 1


def test_a_killed_builder_leaves_nothing_that_counts(
    folder: Path, cache: Path, expected: str, start: Callable[..., Builder]
) -> None:
    """Neither for who waits for it, nor for who comes later."""
    first = start(held=True)
    first.wait_until_held()
    second = start(held=True)
    second.wait_until_waiting()
    first.kill()
    second.wait_until_held()
    second.kill()
    assert entries(cache) == []
    third = start()
    assert third.finish()[0] == expected
    assert third.decoded() == COUNT
    assert os.listdir(cache) == entries(cache)
    assert read(folder).fingerprint() == expected


def test_a_disk_that_takes_no_more_leaves_nothing(
    cache: Path, expected: str, start: Callable[..., Builder]
) -> None:
    """With a limit on the size of files, which fails as a full disk does."""
    out, err = start(limit=2000).finish()
    assert out == ""
    assert "UsageError: The decoded images cannot be written" in err
    assert "its disk is full" in err
    assert os.listdir(cache) == []
    assert start().finish()[0] == expected


def test_two_processes_that_draw_glyphs_at_once_agree(cache: Path, tmp_path: Path) -> None:
    logs = [tmp_path / "first", tmp_path / "second"]
    running = [Started(tmp_path, log, program=draw_glyphs, spares=0) for log in logs]
    assert [process.wait(60 * slowness()) for process in running] == [0, 0]
    prints = {process.said().strip() for process in running}
    assert prints == {make_glyphs(40, 8).fingerprint()}
    assert len(list(cache.iterdir())) == 1
