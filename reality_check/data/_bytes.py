"""Numbers of bytes: how they are written, and how far they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from reality_check.utils.progress_bar import progress

_MEGABYTE = 10**6


def format_bytes(count: float) -> str:
    """Return bytes as people write them: ``"1.2 GB"``, ``"340 MB"``, ``"12 kB"``."""
    for suffix, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.{1 if suffix == 'GB' else 0}f} {suffix}"
    return f"{count:.0f} bytes"


def size_of(path: Path) -> int:
    """Bytes of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def byte_progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show how many megabytes are done while the block runs; it calls what it gets with bytes.

    ``total`` is 0 where it is not known.
    """
    seen = done
    with progress(f"{what} (MB)", total // _MEGABYTE, done // _MEGABYTE) as advance:

        def advance_bytes(count: int) -> None:
            nonlocal seen
            before, seen = seen // _MEGABYTE, seen + count
            if seen // _MEGABYTE > before:
                advance(seen // _MEGABYTE - before)

        yield advance_bytes
