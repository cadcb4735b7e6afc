"""Opens Optuna's journal files, and repairs them after the loss of a machine."""

from __future__ import annotations

import logging
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
    """The file of a ``journal://`` URL.

    Raises:
        UsageError: it is no whole path, or its folder does not exist.
    """
    path = Path(url.partition("://")[2])
    if not path.is_absolute() or not path.parent.is_dir():
        raise UsageError(
            f"storage is {url!r}, but a journal needs the whole path of a file in a folder that "
            "exists, such as journal:///home/me/studies.log"
        )
    return path


def _repair(path: Path, lock: JournalFileSymlinkLock) -> None:
    """Cut off an incomplete last line of a killed writer: the next line would be appended to it."""
    if _is_whole(path):
        return
    lock.acquire()
    try:
        if _is_whole(path):  # another process was writing its line
            return
        with path.open("r+b") as file:
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
        logging.getLogger(__name__).warning("%s: its torn last line is cut off", path)
    finally:
        lock.release()


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"
