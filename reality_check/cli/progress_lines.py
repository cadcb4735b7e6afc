"""Progress as lines, for logs: one for each finished trial, reproduction and stage."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from reality_check.cli.live_view import worker_line
from reality_check.studies.finished import Finished, Watch, stamped
from reality_check.studies.progress import worker_states
from reality_check.studies.recorded_experiment import RecordedExperiment

#: Seconds between two polls of the storage.
_POLL_SECONDS = 2.0
#: After this many seconds without a line, the state of each worker is printed.
_SILENT_SECONDS = 300.0


class ProgressLines:
    """Prints a line when a trial, a reproduction or a stage is finished.

    Args:
        as_json: whether each line is a JSON object, with the key ``event``.
    """

    def __init__(self, as_json: bool = False) -> None:
        self._as_json = as_json
        self._watch: Watch | None = None
        self._recorded: RecordedExperiment | None = None
        self._polled = self._printed = time.monotonic()

    @contextlib.contextmanager
    def shown(self) -> Iterator[ProgressLines]:
        """Poll a last time when the context exits."""
        try:
            yield self
        finally:
            self._poll()

    def __call__(self, recorded: RecordedExperiment) -> None:
        """Poll the experiment, at most every few seconds."""
        if self._recorded is None or recorded.out_dir != self._recorded.out_dir:
            if self._recorded is not None:  # the next data set of a suite
                self._poll()
                self._report(f"{recorded.experiment.name}:")
            # A finished stage has no trial index.
            self._recorded, self._watch = recorded, Watch(recorded)
            if earlier := sum(finished.trial_index is not None for finished in self._watch.news()):
                self._report(f"{earlier} trials and reproductions were complete before")
        if time.monotonic() - self._polled >= _POLL_SECONDS:
            self._poll()

    def log(self, text: str) -> None:
        """Print a message."""
        self._print(text, {"event": "message", "text": text})

    def event(self, kind: str, **details: Any) -> None:
        """Print a line of JSON, if the output is JSON."""
        if self._as_json:
            self._print("", {"event": kind, **details})

    def _poll(self) -> None:
        """Print what is new, or after a long silence what each worker is doing."""
        self._polled = time.monotonic()
        if self._watch is None or self._recorded is None:
            return
        try:
            news = list(self._watch.news())
        except Exception:  # such as a busy storage: progress lines must not end the run
            return
        for finished in news:
            self._report(finished)
        if not news and self._polled - self._printed >= _SILENT_SECONDS:
            for state in worker_states(self._recorded.out_dir):
                self._report(worker_line(state).strip())

    def _report(self, message: str | Finished) -> None:
        """Print a message, or what is finished, with the time."""
        self._printed = time.monotonic()
        if isinstance(message, Finished):
            self._print(stamped(message), message.plain())
        else:
            self._print(stamped(message), {"event": "message", "text": message})

    def _print(self, text: str, plain: dict[str, Any]) -> None:
        print(json.dumps({"time": time.time(), **plain}) if self._as_json else text, flush=True)
