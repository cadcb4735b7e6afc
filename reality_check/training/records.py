"""All that touches record-keeper: the curves of a fold run as CSV, SQLite and TensorBoard.

The history lives in the checkpoint; these files are its readable copy. When a fold run starts or
resumes, the files are written again from that history, so that nothing is recorded twice.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record_keeper import RecordKeeper, RecordWriter

#: Between two writes of the files, at least.
_SAVE_SECONDS = 5.0


class FoldRecords:
    """Writes the curves of one fold run.

    Args:
        folder: emptied first.
        history: the rows recorded so far (see :meth:`append`).
    """

    def __init__(self, folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
        _empty(folder)
        self._tensorboard = _tensorboard_writer(folder / "tensorboard")
        writer = RecordWriter(str(folder))
        self._keeper = RecordKeeper(tensorboard_writer=self._tensorboard, record_writer=writer)
        for row in history:
            self._put(row)
        self._unsaved = bool(history)
        self._save()

    def append(self, row: Mapping[str, Any]) -> None:
        """Record one evaluation: ``step`` (epochs trained so far) and any measurements.

        The files are some seconds behind: writing them takes as long as evaluating a head.
        """
        self._put(row)
        self._unsaved = True
        if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._save()

    def discard(self) -> None:
        """Forget what is not written yet."""
        self._unsaved = False

    def close(self) -> None:
        """Write what is not written yet, and close what is open."""
        self._save()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _put(self, row: Mapping[str, Any]) -> None:
        """record-keeper wants the same columns in every row, and a step that never repeats."""
        for name, value in row.items():
            self._keeper.append_data("curves", name, _number(value), row["step"])

    def _save(self) -> None:
        if self._unsaved:
            self._keeper.save_records()
        self._unsaved, self._saved_at = False, time.monotonic()


def _empty(folder: Path) -> None:
    """Empty the folder.

    On NFS, deleted files that another process has open, such as a worker that is suspended, stay
    under names ``.nfs...``, which no reader of records opens.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith(".nfs"):
            path.unlink()  # says why it is still there


def _tensorboard_writer(folder: Path) -> Any:
    """TensorBoard's writer when the package is installed, else ``None``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))


def _number(value: Any) -> Any:
    return float("nan") if value is None else value
