"""The checkpoints of a fold run: its latest two states, its best states, and its result.

A state is a dictionary with ``task`` (a fingerprint), ``finished``, ``progress`` (see
:class:`reality_check.training.fold_progress.FoldProgress`) and whatever else the trainer restores.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reality_check.config.model import EMBEDDER, MODEL_PREFIX
from reality_check.models.network import PARAMS
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.utils import checkpoints
from reality_check.utils.files import remove_leftovers
from reality_check.utils.lease import LeaseCheck, no_lease

#: Minimum seconds between two checkpoints, so that fast trainings do not wait for the disk.
CHECKPOINT_SECONDS = 30.0
#: Files of a fold run: its last two checkpoints, and the network of a finished run.
LATEST, PREVIOUS, MODEL = "latest.pt", "latest-previous.pt", "model.pt"
#: File beside the network with the proxies of the loss, by their names in its state.
PROXIES = "proxies.pt"

#: Fields of a result that are tuples, and lists in files.
_TUPLES = ("curve", "cut_short", "remarks")

_log = logging.getLogger(__name__)

State = dict[str, Any]


class FoldCheckpoints:
    """Reads and writes ``latest.pt``, ``latest-previous.pt``, ``best-*.pt`` and ``model.pt``.

    Args:
        folder: the folder of the fold run.
        task: the task of the fold run; checkpoints of other tasks are ignored.
        is_main: whether this process writes files, and does not only read them.
        seconds: minimum seconds between two checkpoints (default: ``CHECKPOINT_SECONDS``).
        renew_lease: called before files are touched; raises if another worker has taken over the
            folder.

    Attributes:
        best: the state with the best validation value so far, or ``None`` before the first one.
    """

    def __init__(
        self,
        folder: Path,
        task: FoldTask,
        is_main: bool = True,
        seconds: float | None = None,
        renew_lease: LeaseCheck = no_lease,
    ) -> None:
        self.folder = folder
        self.seconds = CHECKPOINT_SECONDS if seconds is None else seconds
        self.best: State | None = None
        self._task = task
        self._is_main = is_main
        self._renew_lease = renew_lease
        self._kept_best: set[Path] = set()  # the best states that the checkpoints on disk refer to
        self._saved_at = time.monotonic()

    # -- reading ----------------------------------------------------------------------------

    def load(self) -> FoldResult | State | None:
        """Load the latest checkpoint of this task that is not damaged.

        The best state that it refers to becomes :attr:`best`.

        Returns:
            The result of a finished run, otherwise the latest state; ``None`` if there is none.
        """
        if self._is_main:
            self._renew_lease()
            remove_leftovers(self.folder)
        for name in (LATEST, PREVIOUS):
            try:
                state = checkpoints.load(self.folder / name)
                if state is None:
                    continue
                if state["task"] != self._task.fingerprint():
                    # The checkpoint is of other parameters, such as those of deleted studies.
                    self._remove(name)
                    continue
                if state["finished"]:
                    if self._task.keep_model:
                        checkpoints.check(self.folder / MODEL)
                    result = state["result"]
                    tuples = {key: tuple(result[key]) for key in _TUPLES}
                    return FoldResult(**{**result, **tuples})
                for path in self._best_paths(state):  # one or none
                    self.best = checkpoints.load(path)
                    if self.best is None:
                        raise FileNotFoundError(f"{path} is missing")
                    self._kept_best = {path}
                return state
            except (checkpoints.Damaged, FileNotFoundError) as error:
                fallback = "the checkpoint before it" if name == LATEST else "the beginning"
                _log.warning("%s; this training continues from %s", error, fallback)
                self._remove(name)
        return None

    def _best_paths(self, state: Mapping[str, Any]) -> set[Path]:
        """Return the path of the best state that a state refers to, as a set; empty if none."""
        best = state["progress"]["best"]
        return {self.folder / f"best-{best['phase']}-{best['epoch']}.pt"} if best else set()

    # -- writing ----------------------------------------------------------------------------

    def remove_unused(self) -> None:
        """Delete the best states that no checkpoint refers to."""
        self._renew_lease()
        # Beside LATEST there may be PREVIOUS, whose best state is not known here.
        if self._is_main and not (self.folder / LATEST).exists():
            self._remove_best(self._kept_best)

    def save_if_due(self, make_state: Callable[[], State]) -> None:
        """Save a state if enough time has passed since the last one."""
        if time.monotonic() - self._saved_at >= self.seconds and self._is_main:
            self.save(make_state())

    def save(self, state: State) -> None:
        """Save the best state, then the current state, and only then delete older best states.

        The previous checkpoint is kept with its best state: there are at most five states,
        including the one that is being written.
        """
        self._renew_lease()
        keep = self._best_paths(state)
        for path in keep:
            if self.best is not None and not path.exists():
                checkpoints.save(path, self.best)
        latest = self.folder / LATEST
        if latest.exists():
            os.replace(latest, self.folder / PREVIOUS)
        checkpoints.save(latest, state)
        self._remove_best(keep | self._kept_best)
        self._kept_best = keep
        self._saved_at = time.monotonic()

    def save_result(self, result: FoldResult, state: State) -> None:
        """Write the result and what the task keeps of the state; delete all checkpoints."""
        self._renew_lease()
        if self._task.keep_model:
            loss = state["loss"]
            proxies = {name: loss[name] for name in loss if name.endswith("proxies")}
            checkpoints.save(self.folder / PROXIES, proxies)
            network = {**state["network"], **state.get("average", {})}
            # A perceptron's state has its own searched values.
            searched = {
                name: value
                for name, value in self._task.settings.params.items()
                if name.startswith(f"{MODEL_PREFIX}.") and not name.startswith(EMBEDDER)
            }
            checkpoints.save(
                self.folder / MODEL, network | ({PARAMS: searched} if searched else {})
            )
        plain = vars(result) | {key: list(getattr(result, key)) for key in _TUPLES}
        finished_state = {"finished": True, "task": self._task.fingerprint(), "result": plain}
        checkpoints.save(self.folder / LATEST, finished_state)
        self._remove_best()
        (self.folder / PREVIOUS).unlink(missing_ok=True)

    def _remove(self, name: str) -> None:
        """Delete an unusable checkpoint, which :meth:`save` would move over the previous one."""
        if self._is_main:
            (self.folder / name).unlink(missing_ok=True)

    def _remove_best(self, keep: Collection[Path] = ()) -> None:
        for path in self.folder.glob("best-*.pt"):
            if path not in keep:
                path.unlink(missing_ok=True)
