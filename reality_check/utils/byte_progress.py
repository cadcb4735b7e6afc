"""Format numbers of bytes, and show the progress of reading or writing them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from reality_check.utils.progress_bar import progress

_MEGABYTE = 10**6


def format_bytes(count: float) -> str:
    """Return a number of bytes as text: ``"1.2 GB"``, ``"340 MB"``, ``"12 kB"``."""
    for suffix, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:  # gigabytes get a digit after the point
            return f"{count / factor:.{1 if suffix == 'GB' else 0}f} {suffix}"
    return f"{count:.0f} bytes"


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def byte_progress(description: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in megabytes while the block runs.

    Args:
        total: number of bytes; 0 if it is unknown.
        done: number of bytes that are processed already.

    Yields:
        A function to be called with the number of bytes that were processed since its last call.
    """
    processed = done
    with progress(f"{description} (MB)", total // _MEGABYTE, done // _MEGABYTE) as advance:

        def advance_bytes(count: int) -> None:
            nonlocal processed
            shown = processed // _MEGABYTE  # the bar counts whole megabytes
            processed += count
            if processed // _MEGABYTE > shown:
                advance(processed // _MEGABYTE - shown)

        yield advance_bytes
