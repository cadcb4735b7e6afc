"""Atomic writes: neither a reader nor a restart ever sees half a file."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def atomic_write(path: str | os.PathLike[str], content: str | bytes, durable: bool = True) -> None:
    """Write ``content`` to ``path`` so that the file is either the old one or the whole new one.

    The bytes are written to a temporary file in the same folder and synced to the disk; only then
    is the file renamed to ``path``. If anything fails, for example because the disk is full, the
    old file stays and the temporary one is removed.

    Args:
        path: file to write; missing parent folders are made.
        content: text (written as UTF-8, line ends as they are) or bytes.
        durable: whether to wait for the disk. Without it, a machine that fails may leave an empty
            file, which is acceptable for files that are soon replaced anyway.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    # The start of a long name is enough: names are limited to 255 bytes.
    temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # the error of a full disk does not name the file
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        _sync_folder(target.parent)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of writers that were killed in the middle of a write."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, if the system can sync a folder (Windows cannot)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
