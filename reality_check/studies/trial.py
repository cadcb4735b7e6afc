"""Attempts at trials in the storage, with the attributes that they have there."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState

from reality_check.utils.errors import UsageError
from reality_check.utils.lease import LeaseCheck, no_lease

State = Literal["complete", "running", "waiting", "failed"]

_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.FAIL: "failed",
    TrialState.PRUNED: "failed",
}


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

    @classmethod
    def of(cls, trial: FrozenTrial, made_of: Sequence[Any] | None = ()) -> StoredTrial:
        """Read a trial of Optuna.

        Args:
            trial: the trial.
            made_of: the data that trials would depend on now, by trial index.

        Raises:
            UsageError: an older version wrote the trial, with all scores in one attribute.
        """
        if "scores" in trial.user_attrs:
            raise UsageError(
                f"trial {trial.number} of this output folder has its scores as older versions of "
                "reality-check wrote them, which this one does not read; read the folder with the "
                "version that wrote it, or run its experiment again into a new folder with --out."
            )
        recorded = {key: value for key, value in trial.user_attrs.items() if key in _ATTRIBUTES}
        state = _STATES[trial.state]
        recorded_made_of, index = recorded.get("made_of"), recorded.get("trial_index") or 0
        is_current = (
            recorded_made_of is None
            or made_of is None
            or [*made_of[index : index + 1]] == [recorded_made_of]
        )
        return cls(
            number=trial.number,
            trial_id=trial._trial_id,
            state=state,
            value=trial.value if state == "complete" else None,
            params=trial.params,
            started=trial.datetime_start,
            ended=trial.datetime_complete,
            scores=_nested_scores(trial.user_attrs),
            superseded=not is_current,
            **recorded,
        )

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


#: Prefix of the attributes that contain scores.
_SCORE_PREFIX = "score/"
_OPTUNA_FIELDS = {"number", "trial_id", "state", "value", "params", "started", "ended"}
_COMPUTED_FIELDS = {*_OPTUNA_FIELDS, "superseded"}
_ATTRIBUTES = {field.name for field in dataclasses.fields(StoredTrial)} - _COMPUTED_FIELDS


def set_attributes(trial: Any, **attributes: Any) -> None:
    """Write attributes of :class:`StoredTrial` into a running trial of Optuna."""
    for key, value in attributes.items():
        if key not in _ATTRIBUTES:
            raise TypeError(f"a trial has no attribute {key!r}")
        if key == "scores":
            # Each score is one attribute, so that Optuna's tools can sort trials by it.
            for category, metrics in value.items():
                for metric, score in metrics.items():
                    trial.set_user_attr(f"{_SCORE_PREFIX}{category}/{metric}", score)
        else:
            trial.set_user_attr(key, value)


def _nested_scores(attributes: Mapping[str, Any]) -> dict[str, dict[str, float]] | None:
    """Return the scores that :func:`set_attributes` wrote, or ``None`` if there are none."""
    scores: dict[str, dict[str, float]] = {}
    for name, value in attributes.items():
        if name.startswith(_SCORE_PREFIX):
            category, _, metric = name.removeprefix(_SCORE_PREFIX).partition("/")
            scores.setdefault(category, {})[metric] = value
    return scores or None


def record_error(trial: optuna.Trial, error: Exception, seconds: float) -> None:
    """Record why a trial ends, if the storage allows it.

    Raises:
        Exception: another worker has ended the trial (see :func:`was_taken_away`).
    """
    try:
        set_attributes(trial, error=f"{type(error).__name__}: {error}", seconds=seconds)
    except Exception as other:
        if was_taken_away(other):
            raise
        logging.getLogger(__name__).warning("the error cannot be noted: %s", other)


def was_taken_away(error: BaseException) -> bool:
    """Whether Optuna refused to touch a trial because another worker has ended it."""
    if isinstance(error, optuna.exceptions.UpdateFinishedTrialError):
        return True
    if isinstance(error, AssertionError) and error.__context__ is not None:
        # The refusal is hidden by an assertion that Optuna raises while it logs the trial.
        return was_taken_away(error.__context__)
    return isinstance(error, ValueError | RuntimeError) and "Cannot tell a" in str(error)


@dataclass(frozen=True)
class TrialContext:
    """A trial that this worker has claimed.

    Attributes:
        trial_index: the index of the trial within the study.
        params: the parameters to train with; ``None`` if every trial of the search diverged, so
            that there is none to retrain.
        renew_lease: to be called before files of the trial are touched. It returns the time (by
            ``time.monotonic``) until which it need not be called again, and raises ``LeaseLost``
            if the trial went to another worker because this one's heartbeat had stopped.
    """

    trial_index: int
    params: dict[str, Any] | None
    renew_lease: LeaseCheck = no_lease


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        value: the value to maximise.
        attributes: attributes of :class:`StoredTrial` to record.
    """

    value: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


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


Work = Callable[[TrialContext], TrialResult]
