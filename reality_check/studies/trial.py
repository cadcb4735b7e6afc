"""An attempt at a trial in the storage, with the names of its attributes."""

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
    """A trial of Optuna, with the attributes that our workers recorded.

    Attributes:
        number: of the attempt, from 0 on, in the order in which they were made.
        trial_id: Optuna's own key.
        state: Optuna's state.
        value: what was maximised, once it is complete.
        params: what was drawn.
        started: when its worker began it.
        ended: when it ended.
        trial_index: which of the study's trials it is an attempt at.
        worker: the process that signed it.
        device: what it runs on.
        gpu: kind of GPU, its driver and libraries.
        gpu_settings: the GPU settings of its training, and those that were impossible.
        processes: how many processes train it at a time.
        seconds: how long it took, or up to its last heartbeat.
        duplicate: whether another attempt holds its index.
        stopped: whether its worker was asked to stop.
        error: the exception that ended it.
        diverged: why it counts as 0.
        fold_values: of a trial with folds: the validation score of each,
        fold_epochs: its best epoch,
        follow_up_epochs: those of them in the second phase,
        epochs_spent: all epochs trained,
        cut_short: the phases that ended at their best epoch because none more was allowed,
        curves: (step, MAP@R) of each evaluation.
        scores: of a reproduction: its metrics by category.
        epochs: of a final run: what it trained for.
        made_of: what it depends on in other studies and in values that may grow.
        superseded: whether ``made_of`` has changed since, so that it does not count any more.
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
            made_of: by trial index, what a trial would depend on now.

        Raises:
            UsageError: an older version wrote it, which kept all scores in one attribute.
        """
        if "scores" in trial.user_attrs:
            raise UsageError(
                f"trial {trial.number} of this output folder has its scores as older versions of "
                "reality-check wrote them, which this one does not read; read the folder with the "
                "version that wrote it, or run its experiment again into a new folder with --out."
            )
        recorded = {key: value for key, value in trial.user_attrs.items() if key in _ATTRIBUTES}
        state = _STATES[trial.state]
        made, index = recorded.get("made_of"), recorded.get("trial_index") or 0
        is_current = made is None or made_of is None or [*made_of[index : index + 1]] == [made]
        return cls(
            number=trial.number,
            trial_id=trial._trial_id,
            state=state,
            value=trial.value if state == "complete" else None,
            params=trial.params,
            started=trial.datetime_start,
            ended=trial.datetime_complete,
            scores=_nested(trial.user_attrs),
            superseded=not is_current,
            **recorded,
        )

    @property
    def holds_its_index(self) -> bool:
        """Whether no other attempt at the same trial may begin."""
        return self.state != "failed" and not self.superseded

    @property
    def was_abandoned(self) -> bool:
        """Whether it failed without a reason: its worker was killed, or its heartbeat stopped."""
        spoke = self.error is not None or self.duplicate or self.stopped
        return self.state == "failed" and not spoke

    @property
    def hours(self) -> float:
        """Hours of its processes or GPUs, up to the last heartbeat if it has not ended."""
        return (self.seconds or 0.0) * self.processes / 3600

    @property
    def device_kind(self) -> str:
        """``cuda``, ``cpu``, ... or ``unknown``."""
        return (self.device or "unknown").partition(":")[0]


#: What the name of a score begins with, as an attribute of a trial.
_SCORE = "score/"
_OF_OPTUNA = {"number", "trial_id", "state", "value", "params", "started", "ended"}
_COMPUTED = {*_OF_OPTUNA, "superseded"}
_ATTRIBUTES = {field.name for field in dataclasses.fields(StoredTrial)} - _COMPUTED


def set_attributes(trial: Any, **attributes: Any) -> None:
    """Write attributes of a running trial of Optuna."""
    for key, value in attributes.items():
        if key not in _ATTRIBUTES:
            raise TypeError(f"a trial has no attribute {key!r}")
        if key == "scores":
            # One attribute each, as Optuna's own tools can sort trials by.
            for category, metrics in value.items():
                for metric, score in metrics.items():
                    trial.set_user_attr(f"{_SCORE}{category}/{metric}", score)
        else:
            trial.set_user_attr(key, value)


def _nested(attributes: Mapping[str, Any]) -> dict[str, dict[str, float]] | None:
    """Return the scores that :func:`set_attributes` wrote; ``None`` without any."""
    scores: dict[str, dict[str, float]] = {}
    for name, value in attributes.items():
        if name.startswith(_SCORE):
            category, _, metric = name.removeprefix(_SCORE).partition("/")
            scores.setdefault(category, {})[metric] = value
    return scores or None


def record_error(trial: optuna.Trial, error: Exception, seconds: float) -> None:
    """Record why a trial ends, if the storage allows it.

    Raises:
        Exception: Optuna's, if another worker has ended it (see :func:`was_taken_away`).
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
        # Optuna's own assertion while it logs the refused trial hides the refusal.
        return was_taken_away(error.__context__)
    return isinstance(error, ValueError | RuntimeError) and "Cannot tell a" in str(error)


@dataclass(frozen=True)
class TrialContext:
    """A trial that this worker has claimed.

    Attributes:
        trial_index: its number within the study.
        params: what to train with; ``None`` for a search without a sound trial to retrain.
        renew_lease: to be called before files of the trial are touched; returns until when (by
            ``time.monotonic``) it need not be called again, and raises ``LeaseLost`` when the trial
            went to another worker, because this one's heartbeat had stopped.
    """

    trial_index: int
    params: dict[str, Any] | None
    renew_lease: LeaseCheck = no_lease


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        value: to be maximised.
        attributes: attributes of :class:`StoredTrial`.
    """

    value: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


def complete_by_index(trials: Sequence[StoredTrial], num_trials: int) -> dict[int, StoredTrial]:
    """Return the complete attempts by trial index, below ``num_trials``."""
    complete: dict[int, StoredTrial] = {}
    for trial in trials:
        index = trial.trial_index
        if trial.state != "complete" or trial.superseded:
            continue
        if index is not None and index < num_trials:
            complete.setdefault(index, trial)
    return dict(sorted(complete.items()))


def best_trial(trials: Mapping[int, StoredTrial]) -> StoredTrial | None:
    """Return the trial with the highest value; ``None`` if all diverged, or there is none."""
    return next(iter(ranked_trials(trials)), None)


def ranked_trials(trials: Mapping[int, StoredTrial]) -> list[StoredTrial]:
    """Return the trials that did not diverge, best first; of equals, the earlier."""
    sound = [trial for trial in trials.values() if trial.diverged is None]
    return sorted(sound, key=lambda trial: -(trial.value or 0.0))


Work = Callable[[TrialContext], TrialResult]
