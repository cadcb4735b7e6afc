"""Writes the readings of energy counters to ``logs/energy/`` while a worker works."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from reality_check.launch.energy.counters import Counter
from reality_check.studies.energy_notes import PERIOD, notes_folder
from reality_check.utils.processes import this_boot


class Meter:
    """Writes what the counters read, every half minute and whenever other work begins.

    The file (see :mod:`reality_check.studies.energy_notes`) is a record for the report; where it
    cannot be written, the work continues without.

    Args:
        find: returns the counters, and a sentence for each part of the machine without one; called
            when the first work begins.
    """

    def __init__(
        self,
        out_dir: Path,
        find: Callable[[], tuple[Sequence[Counter], Sequence[str]]],
        period: float = PERIOD,
    ) -> None:
        self._folder, self._find, self._period = notes_folder(out_dir), find, period
        self._counters: Sequence[Counter] = ()
        self._work: tuple[str, str] | None = None
        self._file: TextIO | None = None
        self._begun = False
        self._closed = threading.Event()
        self._lock = threading.Lock()  # the file is written by two threads

    def begin(self, work: tuple[str, str] | None) -> None:
        """From now on the energy goes to this work: method and stage; None for waiting."""
        if work == self._work:
            return
        if not self._begun:
            self._start()
        with self._lock:
            self._work = work
            self._note()

    def close(self) -> None:
        """Note a last time."""
        self.begin(None)
        self._closed.set()
        with self._lock:
            self._close_file()

    def _start(self) -> None:
        self._begun = True
        self._counters, missing = self._find()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            self._file = (self._folder / name).open("x", encoding="utf-8")
        except OSError:
            return
        known = {c.key: {"part": c.part, "wraps_at": c.wraps_at} for c in self._counters}
        self._write({"machine": this_boot(), "counters": known, "missing": list(missing)})
        if known:
            threading.Thread(target=self._note_periodically, daemon=True).start()

    def _note_periodically(self) -> None:
        while not self._closed.wait(self._period):
            with self._lock:
                self._note()

    def _note(self) -> None:
        joules = {}
        for counter in self._counters:
            with contextlib.suppress(OSError, ValueError):
                joules[counter.key] = counter.read()
        if joules:
            self._write({"time": time.monotonic(), "work": self._work, "joules": joules})

    def _write(self, note: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(note) + "\n")
            self._file.flush()
        except OSError:  # a full disk
            self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
