"""Optuna's journal files, which are opened and, after the loss of a machine, repaired."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from reality_check.utils.errors import UsageError


def open_journal(url: str) -> JournalStorage:
    """Open the journal file of a ``journal://`` URL."""
    path = journal_path(url)
    lock = JournalFileSymlinkLock(str(path))
    if path.exists():
        _repair(path, lock)
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def journal_path(url: str) -> Path:
    """Return the file of a ``journal://`` URL.

    Raises:
        UsageError: the path is not absolute, or its folder does not exist.
    """
    path = Path(url.partition("://")[2])
    if not path.is_absolute() or not path.parent.is_dir():
        raise UsageError(
            f"storage is {url!r}, but a journal needs the whole path of a file in a folder that "
            "exists, such as journal:///home/me/studies.log"
        )
    return path


def _repair(path: Path, lock: JournalFileSymlinkLock) -> None:
    """Cut off an incomplete last line, to which the next line would be appended.

    A writer that is killed can leave such a line.
    """
    if _ends_with_newline(path):
        return
    lock.acquire()
    try:
        if _ends_with_newline(path):  # the line was not torn: its writer has finished it now
            return
        with path.open("r+b") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
        logging.getLogger(__name__).warning("%s: its torn last line is cut off", path)
    finally:
        lock.release()


def _ends_with_newline(path: Path) -> bool:
    """Whether a file is empty or ends with a newline."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
