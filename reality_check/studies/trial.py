"""Reading and writing the attributes of trials in the storage."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from reality_check.results import State, TrialRecord
from reality_check.utils.errors import UsageError
from reality_check.utils.lease import LeaseCheck, no_lease

_STATES: dict[TrialState, State] = {
    TrialState.COMPLETE: "complete",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.FAIL: "failed",
    TrialState.PRUNED: "failed",
}

#: The attribute that says how many seconds a trial ran until its last heartbeat.
HEARTBEAT = "heartbeat"
#: Prefix of the attributes that contain scores.
_SCORE_PREFIX = "score/"
_OPTUNA_FIELDS = {"number", "trial_id", "state", "value", "params", "started", "ended"}
_COMPUTED_FIELDS = {
    *_OPTUNA_FIELDS,
    "superseded",
    "attempts",
    "stopped_after",
    "search",
    "retrained",
}
_ATTRIBUTES = {field.name for field in dataclasses.fields(TrialRecord)} - _COMPUTED_FIELDS


def read_trial(trial: FrozenTrial) -> TrialRecord:
    """Read a trial of Optuna.

    Raises:
        UsageError: an older version wrote the trial, with all scores in one attribute.
    """
    if "scores" in trial.user_attrs:
        raise UsageError(
            f"trial {trial.number} of this output folder has its scores as older versions of "
            "reality-check wrote them, which this one does not read; read the folder with the "
            "version that wrote it, or run its experiment again into a new folder with --out."
        )
    state = _STATES[trial.state]
    recorded = {"seconds": trial.user_attrs.get(HEARTBEAT), **trial.user_attrs}
    attributes = {key: value for key, value in recorded.items() if key in _ATTRIBUTES}
    return TrialRecord(
        attributes.pop("trial_index", None),
        state,
        trial.value if state == "complete" else None,
        trial.params,
        number=trial.number,
        trial_id=trial._trial_id,
        started=trial.datetime_start,
        ended=trial.datetime_complete,
        scores=_nested_scores(trial.user_attrs),
        **attributes,
    )


def set_attributes(trial: Any, **attributes: Any) -> None:
    """Write attributes of :class:`TrialRecord` into a running trial of Optuna."""
    written: dict[str, Any] = {}
    for key, value in attributes.items():
        if key not in _ATTRIBUTES:
            raise TypeError(f"a trial has no attribute {key!r}")
        if key == "scores":
            # Each score is one attribute, so that Optuna's tools can sort trials by it.
            for category, metrics in value.items():
                for metric, score in metrics.items():
                    written[f"{_SCORE_PREFIX}{category}/{metric}"] = score
        else:
            written[key] = value
    trial.storage.set_trial_user_attrs(trial._trial_id, written)


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
    # The refusal of Study.tell, which ends a trial.
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
        attributes: attributes of :class:`TrialRecord` to record.
    """

    value: float
    attributes: Mapping[str, Any] = field(default_factory=dict)


Work = Callable[[TrialContext], TrialResult]
