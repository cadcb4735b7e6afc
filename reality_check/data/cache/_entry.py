"""One data set in the cache: a folder with all decoded pixels, an index and its checksums.

======================  ==========================================================================
``pixels.bin``          the images one after the other, uint8
``index.bin``           one :data:`RECORD` per file of the data set; height 0 where it is broken
``broken.jsonl``        one line ``[row, reason]`` per broken file
``meta.json``           what was decoded how, and the sha256 of index and broken files; written last
======================  ==========================================================================

While it is built, the folder has another name and the first three files only grow, so what a killed
builder leaves is a beginning that can be continued.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reality_check.data._digests import image_digests
from reality_check.data.images import Images
from reality_check.utils.files import atomic_write

#: What the index says of each file: its size after decoding, and the checksum of its pixels.
RECORD = np.dtype([("height", "<i4"), ("width", "<i4"), ("sha256", "u1", (32,))])

PIXELS, INDEX, BROKEN, META = "pixels.bin", "index.bin", "broken.jsonl", "meta.json"


@dataclass(frozen=True, eq=False)
class Entry:
    """A complete entry.

    Args:
        index: :data:`RECORD`, shape (files,).
        broken: why a row could not be decoded.
    """

    folder: Path
    index: np.ndarray
    channels: int
    broken: dict[int, str]

    @property
    def rows(self) -> np.ndarray:
        """The files that could be decoded: ascending rows of the data set."""
        return np.flatnonzero(self.index["height"])

    def images(self) -> Images:
        """Return the decoded images, memory-mapped read-only."""
        # Read-only, not copy-on-write: the system may refuse a private map larger than its memory.
        pixels = np.memmap(self.folder / PIXELS, np.uint8, mode="r")
        return _images(pixels, self.index[self.rows], self.channels)

    def first_damaged(self) -> int | None:
        """Read all pixels; return the first row that differs from its checksum, or None."""
        return _first_damaged(self.folder / PIXELS, self.index, self.channels)


def open_entry(folder: Path) -> Entry | None:
    """Open an entry, or return None where there is none or it is damaged at first sight.

    That is by the checksum of the index and the length of the pixels, which are not read here.
    """
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        index, broken = (folder / INDEX).read_bytes(), (folder / BROKEN).read_bytes()
        if meta["sha256"] != _sha256(index, broken):
            return None
        records = np.frombuffer(index, RECORD)
        channels = int(meta["channels"])
        if (folder / PIXELS).stat().st_size != int(_sizes(records, channels).sum()):
            return None
        return Entry(folder, records, channels, _parse_broken(broken))
    except (OSError, ValueError, KeyError, TypeError):
        return None


class EntryWriter:
    """Writes an entry into a folder, continuing with what is there.

    Attributes:
        done: number of files that were decoded already.
    """

    def __init__(self, folder: Path, channels: int) -> None:
        self._folder, self._channels = folder, channels
        self.done = _cut_to_intact(folder, channels)
        # In this order, so that the index never promises what is not there yet.
        names = (PIXELS, BROKEN, INDEX)
        self._files = [open(folder / name, "ab") for name in names]  # noqa: SIM115 (see close)

    def add(
        self, pixels: Sequence[np.ndarray], records: np.ndarray, broken: Sequence[tuple[int, str]]
    ) -> None:
        """Append the next files: a :data:`RECORD` of each, and the pixels of the intact ones."""
        lines = "".join(json.dumps(list(line)) + "\n" for line in broken)
        contents = (b"".join(image.data for image in pixels), lines.encode(), records.tobytes())
        for file, content in zip(self._files, contents, strict=True):
            file.write(content)
            file.flush()
        self.done += len(records)

    def finish(self, meta: dict[str, Any]) -> None:
        """Bring everything to the disk and write ``meta.json``."""
        for file in self._files:
            os.fsync(file.fileno())
        contents = [(self._folder / name).read_bytes() for name in (INDEX, BROKEN)]
        meta = {**meta, "channels": self._channels, "sha256": _sha256(*contents)}
        atomic_write(self._folder / META, json.dumps(meta, indent=1) + "\n")

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _cut_to_intact(folder: Path, channels: int) -> int:
    """Cut what a killed builder left to the files that are whole; return their number."""
    pixels, index, broken = (folder / name for name in (PIXELS, INDEX, BROKEN))
    for path in (pixels, index, broken):
        path.touch()
    records = np.fromfile(index, RECORD, count=index.stat().st_size // RECORD.itemsize)
    ends = np.cumsum(_sizes(records, channels))
    count = int(np.searchsorted(ends, pixels.stat().st_size, side="right"))
    damaged = _first_damaged(pixels, records[:count], channels)
    count = count if damaged is None else damaged
    reasons = _parse_broken(broken.read_bytes())
    lines = [json.dumps([row, text]) + "\n" for row, text in reasons.items()]
    os.truncate(pixels, int(ends[count - 1]) if count else 0)
    os.truncate(index, count * RECORD.itemsize)
    broken.write_text("".join(lines), encoding="utf-8")
    return count


def _first_damaged(pixels_path: Path, records: np.ndarray, channels: int) -> int | None:
    rows = np.flatnonzero(records["height"])
    if not rows.size:
        return None
    images = _images(np.memmap(pixels_path, np.uint8, mode="r"), records[rows], channels)
    wrong = np.flatnonzero((image_digests(images) != records["sha256"][rows]).any(axis=1))
    return int(rows[wrong[0]]) if wrong.size else None


def _images(pixels: np.ndarray, records: np.ndarray, channels: int) -> Images:
    sizes = _sizes(records, channels)
    return Images(pixels, np.cumsum(sizes) - sizes, records["height"], records["width"], channels)


def _sizes(records: np.ndarray, channels: int) -> np.ndarray:
    return records["height"].astype(np.int64) * records["width"] * channels


def _parse_broken(content: bytes) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for line in content.splitlines():
        with contextlib.suppress(ValueError, TypeError):  # a killed builder's last line
            row, reason = json.loads(line)
            reasons[int(row)] = str(reason)
    return reasons


def _sha256(*contents: bytes) -> str:
    return hashlib.sha256(b"".join(contents)).hexdigest()
