"""An attempt at a trial, as plain data, and what follows from the attempts of a study."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

State = Literal["complete", "running", "waiting", "failed"]


@dataclass(frozen=True)
class StoredTrial:
    """An attempt at a trial: a trial of Optuna, with the attributes that workers recorded.

    Attributes:
        number: the number of the attempt within the study, counted from 0.
        trial_id: Optuna's key of the trial.
        state: the state of the trial.
        value: the maximised value; ``None`` unless the trial is complete.
        params: the parameters that were drawn.
        started: the time when the worker began it.
        ended: the time when it ended.
        trial_index: which of the study's trials it is an attempt at.
        worker: the process that runs it; ``None`` before it has signed the trial.
        device: the device on which it runs.
        gpu: the kind of GPU, with its driver and libraries.
        gpu_settings: the GPU settings of its training, and those that could not be used.
        processes: the number of processes that train it at a time.
        seconds: its duration, or that up to its last heartbeat.
        duplicate: whether another attempt has its index.
        stopped: whether its worker was asked to stop.
        error: the exception that ended it.
        diverged: why the training diverged; ``None`` if it did not.
        fold_values: the validation score of each fold, for a trial with folds.
        fold_epochs: the best epoch of each fold.
        follow_up_epochs: how many of these epochs were in the second phase, for each fold.
        epochs_spent: the number of all epochs trained, for each fold.
        cut_short: the phases whose best epoch was the last one allowed, for each fold.
        curves: pairs of step and validation score of every evaluation, for each fold.
        scores: the metrics by category, for a reproduction.
        epochs: the number of epochs trained, for a final run.
        made_of: the results of other studies, and the values that may grow, that it depends on.
        superseded: whether ``made_of`` has changed since then, so that it no longer counts.
    """

    number: int
    trial_id: int
    state: State
    value: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    started: datetime | None = None
    ended: datetime | None = None
    trial_index: int | None = None
    worker: Mapping[str, Any] | None = None
    device: str | None = None
    gpu: str | None = None
    gpu_settings: str | None = None
    processes: int = 1
    seconds: float | None = None
    duplicate: bool = False
    stopped: bool = False
    error: str | None = None
    diverged: str | None = None
    fold_values: Sequence[float] = ()
    fold_epochs: Sequence[int] = ()
    follow_up_epochs: Sequence[int] = ()
    epochs_spent: Sequence[int] = ()
    cut_short: Sequence[Sequence[int]] = ()
    curves: Sequence[Sequence[tuple[int, float]]] = ()
    scores: Mapping[str, Mapping[str, float]] | None = None
    epochs: int | None = None
    made_of: Any = None
    superseded: bool = False

    @property
    def holds_its_index(self) -> bool:
        """Whether the attempt prevents others at the same trial."""
        return self.state != "failed" and not self.superseded

    @property
    def was_abandoned(self) -> bool:
        """Whether the attempt failed without a recorded reason, so that its worker was lost."""
        spoke = self.error is not None or self.duplicate or self.stopped
        return self.state == "failed" and not spoke

    @property
    def hours(self) -> float:
        """Hours of all its processes or GPUs, up to the last heartbeat if it has not ended."""
        return (self.seconds or 0.0) * self.processes / 3600

    @property
    def device_kind(self) -> str:
        """The kind of device, such as ``cuda`` or ``cpu``; ``unknown`` if it is not recorded."""
        return (self.device or "unknown").partition(":")[0]


def mark_superseded(
    trials: Iterable[StoredTrial], made_of: Sequence[Any] | None
) -> tuple[StoredTrial, ...]:
    """Return trials, marked where ``made_of`` has changed since then.

    Args:
        trials: the trials.
        made_of: the data that trials depend on now, by trial index; ``None`` if all count.
    """
    made_of = json.loads(json.dumps(made_of))  # in the form that the storage returns
    return tuple(
        dataclasses.replace(trial, superseded=True) if _is_superseded(trial, made_of) else trial
        for trial in trials
    )


def _is_superseded(trial: StoredTrial, made_of: Sequence[Any] | None) -> bool:
    if trial.made_of is None or made_of is None:
        return False
    index = trial.trial_index or 0
    return [*made_of[index : index + 1]] != [trial.made_of]


def complete_by_index(trials: Sequence[StoredTrial], num_trials: int) -> dict[int, StoredTrial]:
    """Return the complete attempts by trial index, for indices below ``num_trials``."""
    complete: dict[int, StoredTrial] = {}
    for trial in trials:
        index = trial.trial_index
        if trial.state != "complete" or trial.superseded:
            continue
        if index is not None and index < num_trials:
            complete.setdefault(index, trial)
    return dict(sorted(complete.items()))


def best_trial(trials: Mapping[int, StoredTrial]) -> StoredTrial | None:
    """Return the trial with the highest value, or ``None`` if all diverged or there is none."""
    return next(iter(ranked_trials(trials)), None)


def ranked_trials(trials: Mapping[int, StoredTrial]) -> list[StoredTrial]:
    """Return the trials that did not diverge, best first; equal ones in order of their index."""
    sound = [trial for trial in trials.values() if trial.diverged is None]
    return sorted(sound, key=lambda trial: -(trial.value or 0.0))
