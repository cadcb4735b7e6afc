"""Sends trackers the trials that they have not received."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from reality_check.config.plugins import find_plugin, plugins
from reality_check.studies.recorded_experiment import RecordedExperiment, study_name
from reality_check.trackers.tracked_trial import TrackedTrial, tracked
from reality_check.utils.errors import UsageError
from reality_check.utils.own_names import own_path
from reality_check.utils.text import nearest, one_line

#: The module and class of each built-in tracker, by name. The extra that installs its packages has
#: the same name. Other packages add theirs by the entry points ``reality_check.trackers``.
BUILT_IN = {
    "mlflow": ("reality_check.trackers.mlflow", "MLflowTracker"),
    "tensorboard": ("reality_check.trackers.tensorboard", "TensorBoardTracker"),
    "wandb": ("reality_check.trackers.wandb", "WandbTracker"),
}
#: Seconds between two polls for finished trials.
_POLL_SECONDS = 5.0


class Tracker(Protocol):
    """Receives finished trials; closing it sends the rest."""

    def log(self, trial: TrackedTrial) -> None:
        """Receive a trial, which replaces an earlier one of the same method and name."""

    def close(self) -> None:
        """Send the remaining trials."""


#: Makes a tracker from the name of an experiment and its output folder.
Factory = Callable[[str, Path], Tracker]


class Tracking:
    """Sends trackers all trials of an output folder that they have not received.

    A tracker that fails does not end the run, and receives the rest later.

    Args:
        experiment: The name of the experiment.
        out_dir: The output folder; ``trackers/`` in it lists what each tracker received.
        names: The names of the trackers.

    Attributes:
        sent: number of trials that were sent, by tracker.
        problems: why each failed tracker failed, by name.

    Raises:
        UsageError: a tracker does not exist, or its package is missing.
    """

    def __init__(self, experiment: str, out_dir: Path, names: Sequence[str]) -> None:
        self._experiment_and_folder = experiment, out_dir
        self._factories = {name: find_tracker(name) for name in names}
        self._trackers: dict[str, Tracker] = {}
        self._received = {
            name: _Received(own_path(out_dir, f"trackers/{name}.txt")) for name in names
        }
        self._polled = 0.0
        self.sent = dict.fromkeys(names, 0)
        self.problems: dict[str, str] = {}

    def __call__(self, recorded: RecordedExperiment) -> None:
        """Send new trials, unless the last poll was only seconds ago."""
        if time.monotonic() - self._polled >= _POLL_SECONDS:
            with contextlib.suppress(Exception):  # such as a busy storage
                self._send(recorded)
            self._polled = time.monotonic()

    def finish(self, recorded: RecordedExperiment) -> None:
        """Send the remaining trials, also to trackers that failed before; then close all."""
        self.problems.clear()
        self._send(recorded)
        for name, tracker in self._trackers.items():
            self._attempt(name, tracker.close)

    def _send(self, recorded: RecordedExperiment) -> None:
        """Send each tracker the complete trials that it has not received."""
        if not self._factories:
            return
        for study in recorded.states().ready():
            for index, trial in sorted(study.complete.items()):
                study_key = study_name(recorded.experiment, study.planned.key.name)
                # A trial that was repeated has another number, and is sent again.
                attempt = f"{study_key} {index} {trial.number}"
                # The trial is read at most once, and only if a tracker needs it.
                read_trial = functools.cache(functools.partial(tracked, recorded, study, index))
                for name, received in self._received.items():
                    if attempt in received.attempts or name in self.problems:
                        continue
                    if self._attempt(name, functools.partial(self._log, name, read_trial)):
                        received.add(attempt)
                        self.sent[name] += 1

    def _log(self, name: str, read_trial: Callable[[], TrackedTrial]) -> None:
        if name not in self._trackers:
            self._trackers[name] = self._factories[name](*self._experiment_and_folder)
        self._trackers[name].log(read_trial())

    def _attempt(self, name: str, action: Callable[[], None]) -> bool:
        """Call ``action`` and return whether it succeeded; a failure is recorded and logged."""
        try:
            action()
        except Exception as error:
            self.problems[name] = f"{type(error).__name__}: {one_line(error)}"
            logging.getLogger(__name__).warning(
                "tracker %s: %s. To send what is missing later: reality-check track %s %s",
                name,
                self.problems[name],
                self._experiment_and_folder[1],
                name,
            )
            return False
        return True


def find_tracker(name: str) -> Factory:
    """Return the class or function that creates a tracker, by its name.

    Raises:
        UsageError: there is no such tracker, or its package is missing.
    """
    if name not in BUILT_IN:
        plugin = find_plugin("tracker", name)
        if plugin is None:
            known = sorted({*BUILT_IN, *plugins("tracker")})
            raise UsageError(
                f"there is no tracker named {name!r}; write one of {', '.join(known)}."
                f"{nearest(name, known)}"
            )
        return cast(Factory, plugin.load())
    module, attribute = BUILT_IN[name]
    try:
        return cast(Factory, getattr(importlib.import_module(module), attribute))
    except ImportError as error:
        raise UsageError(
            f"tracker {name!r} needs a package that is not there ({one_line(error)}); install it "
            f"with: pip install 'pml-extensions[{name}]'."
        ) from None


class _Received:
    """The attempts that a tracker has received, as the lines of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.attempts = set(file.read_text().splitlines()) if file.exists() else set()

    def add(self, attempt: str) -> None:
        self._file.parent.mkdir(exist_ok=True)
        with self._file.open("a") as opened:
            opened.write(f"{attempt}\n")
        self.attempts.add(attempt)
