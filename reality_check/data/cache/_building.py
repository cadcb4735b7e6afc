"""Building an entry of the cache: one process decodes on all cores, the others wait."""

from __future__ import annotations

import contextlib
import errno
import re
import secrets
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reality_check.data._digests import usable_cores
from reality_check.data.cache._bytes import format_bytes, size_of
from reality_check.data.cache._entry import INDEX, PIXELS, Entry, EntryWriter, open_entry
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress, say

_STALE_SECONDS = 3 * 24 * 3600.0
_ABANDONED_SECONDS = 600.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Chunk(NamedTuple):
    """Some consecutive files, decoded: see :meth:`EntryWriter.add`."""

    pixels: list[np.ndarray]
    records: np.ndarray
    broken: list[tuple[int, str]]


class Job(NamedTuple):
    """What an entry is to hold.

    Attributes:
        name: how messages call the data set.
        total: number of files.
        channels: 1 or 3.
        decode: decodes the files from one row to another (exclusive); called from many threads.
        expected_bytes: estimates the pixels of the files from a row on.
        meta: what ``meta.json`` says besides.
    """

    name: str
    total: int
    channels: int
    decode: Callable[[int, int], Chunk]
    expected_bytes: Callable[[int], int]
    meta: dict[str, Any]


_CHUNK = 16  # files decoded by one thread at a time


def obtain_entry(folder: Path, job: Job) -> Entry:
    """Open an entry; build it first where there is none, or a damaged one.

    Raises:
        UsageError: the cache folder cannot be written, or its disk is full; nothing is left there.
    """
    entry = open_entry(folder)
    if entry is not None:
        return entry
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, job.name) as held:
            was_there = folder.exists()  # before: without locks, another may finish it just now
            entry = open_entry(folder)
            if entry is None:
                if was_there:
                    say(f"The decoded images of {job.name!r} in {folder} are damaged; once more.")
                    _remove(folder)
                _build(folder, job, held)
                entry = open_entry(folder)
    except OSError as error:
        reason = "its disk is full" if error.errno in _FULL else str(error)
        raise UsageError(
            f"The decoded images cannot be written to the cache folder {str(folder.parent)!r} "
            f"({reason}); set REALITY_CHECK_CACHE to a folder that is writable and has enough "
            "space."
        ) from error
    if entry is None:
        raise UsageError(f"What was written to {str(folder)!r} cannot be read; check the disk.")
    return entry


def remove_entry(folder: Path, name: str) -> None:
    """Remove an entry, unless it has been remade meanwhile by another process."""
    try:
        with _lock(folder, name):
            entry = open_entry(folder)
            if folder.exists() and (entry is None or entry.first_damaged() is not None):
                _remove(folder)
    except OSError as error:
        raise UsageError(f"The damaged {str(folder)!r} cannot be removed: {error}.") from error


def _lock(folder: Path, name: str) -> contextlib.AbstractContextManager[bool]:
    def waiting(holder: str) -> None:
        say(f"Waiting for {holder}, which decodes the images of {name!r}.")

    return locked(folder.with_name(f".lock-{folder.name}"), waiting)


def _build(folder: Path, job: Job, held: bool) -> None:
    leftovers = [*folder.parent.glob(".building-*"), *folder.parent.glob(".removing-*")]
    for leftover in _older_than(_STALE_SECONDS, leftovers):
        shutil.rmtree(leftover, ignore_errors=True)
    building = _abandoned(folder) if held else None
    if building is None:
        building = folder.with_name(_building_name(folder, _host(), secrets.token_hex(4)))
        building.mkdir()
    try:
        with contextlib.closing(EntryWriter(building, job.channels)) as writer:
            _check_space(building, job, writer.done)
            _decode_all(writer, job)
            writer.finish(job.meta)
        _rename(building, folder)
    except Exception:  # but who is interrupted (Ctrl-C) continues there the next time
        shutil.rmtree(building, ignore_errors=True)
        raise


def _decode_all(writer: EntryWriter, job: Job) -> None:
    threads = usable_cores()
    what = f"Decoding the images of {job.name!r}"
    with (
        progress(what, job.total, writer.done) as advance,
        ThreadPoolExecutor(threads) as pool,
        contextlib.closing(_in_order(pool, job, writer.done, 3 * threads)) as chunks,
    ):
        for chunk in chunks:
            writer.add(*chunk)
            advance(len(chunk.records))


def _in_order(
    pool: ThreadPoolExecutor, job: Job, first: int, ahead: int
) -> Generator[Chunk, None, None]:
    """Decode on all threads, at most ``ahead`` chunks ahead of who takes them."""
    pending: deque[Future[Chunk]] = deque()
    try:
        for start in range(first, job.total, _CHUNK):
            pending.append(pool.submit(job.decode, start, min(start + _CHUNK, job.total)))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def _check_space(folder: Path, job: Job, done: int) -> None:
    expected, free = job.expected_bytes(done), shutil.disk_usage(folder).free
    if expected > free:
        raise UsageError(
            f"The decoded images of {job.name!r} need about {format_bytes(expected)}, but "
            f"{str(folder.parent)!r} has {format_bytes(free)} free; free some, set "
            "REALITY_CHECK_CACHE to a folder with more space, or write a smaller size."
        )


def _rename(building: Path, folder: Path) -> None:
    try:
        building.rename(folder)
    except OSError:
        if open_entry(folder) is None:
            raise
        shutil.rmtree(building, ignore_errors=True)  # without locks, another was first


def _remove(folder: Path) -> None:
    """Remove a folder so that nobody ever meets half of it."""
    removing = folder.with_name(f".removing-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):  # without locks, another was first
        folder.rename(removing)
    shutil.rmtree(removing, ignore_errors=True)


def _building_name(folder: Path, host: str, token: str) -> str:
    return f".building-{folder.name}-{host}-{token}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())[:64]


def _abandoned(folder: Path) -> Path | None:
    """Where a killed builder of the same entry got furthest; only for who holds the lock.

    Locks of a network's file system may hold on one machine only, so another machine's work counts
    as abandoned only after a while.
    """
    ours = folder.parent.glob(_building_name(folder, _host(), "*"))
    others = folder.parent.glob(_building_name(folder, "*", "*"))
    abandoned = {*ours, *_older_than(_ABANDONED_SECONDS, others)}
    return max(abandoned, key=lambda path: size_of(path / PIXELS), default=None)


def _older_than(seconds: float, folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        with contextlib.suppress(OSError):
            touched = [path.stat().st_mtime for path in (folder, folder / INDEX) if path.exists()]
            if touched and time.time() - max(touched) > seconds:  # else it has just been removed
                yield folder
