"""Converts a study to plain data and back, since packs do not contain a database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

#: Attributes with a trial's process and its error. Both may name machines and paths, so packs omit
#: the process and keep only the kind of the error.
_WORKER, _ERROR = "worker", "error"


def plain_study(study: optuna.Study) -> dict[str, Any]:
    """Return a study as plain data, without trials that are running or waiting."""
    return {
        "attributes": study.user_attrs,
        "trials": [
            _plain_trial(trial)
            for trial in study.get_trials(deepcopy=False)
            if trial.state.is_finished()
        ],
    }


def restore_study(storage: BaseStorage, name: str, plain: Mapping[str, Any]) -> None:
    """Write a study into a storage; trials that an interrupted call has written are kept."""
    study = optuna.create_study(
        study_name=name, storage=storage, direction="maximize", load_if_exists=True
    )
    existing = len(study.get_trials(deepcopy=False))
    for trial in trials_of(plain)[existing:]:
        study.add_trial(trial)
    for key, value in plain["attributes"].items():
        if study.user_attrs.get(key) != value:
            study.set_user_attr(key, value)


def trials_of(plain: Mapping[str, Any]) -> list[FrozenTrial]:
    """Return the trials of a plain study; for invalid data, any exception may be raised."""
    return [_trial(trial) for trial in plain["trials"]]


def _plain_trial(trial: FrozenTrial) -> dict[str, Any]:
    """Return a finished trial as plain data."""
    attributes = {key: value for key, value in trial.user_attrs.items() if key != _WORKER}
    if _ERROR in attributes:  # "KIND: message", of which only the kind is kept
        attributes[_ERROR] = str(attributes[_ERROR]).partition(":")[0]
    return {
        "state": trial.state.name,
        "value": trial.value,
        "params": trial.params,
        "distributions": {k: distribution_to_json(v) for k, v in trial.distributions.items()},
        "attributes": attributes,
        "of_optuna": trial.system_attrs,
        "started": _time_to_text(trial.datetime_start),
        "ended": _time_to_text(trial.datetime_complete),
    }


def _trial(plain: Mapping[str, Any]) -> FrozenTrial:
    """Return the trial that :func:`_plain_trial` converted."""
    return FrozenTrial(
        number=-1,  # the storage assigns the number and the id
        trial_id=-1,
        state=TrialState[plain["state"]],
        value=plain["value"],
        values=None,
        params=dict(plain["params"]),
        distributions={k: json_to_distribution(v) for k, v in plain["distributions"].items()},
        user_attrs=dict(plain["attributes"]),
        system_attrs=dict(plain["of_optuna"]),
        intermediate_values={},
        datetime_start=_time_from_text(plain["started"]),
        datetime_complete=_time_from_text(plain["ended"]),
    )


def _time_to_text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time_from_text(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
