"""What follows from the attempts at the trials of a study."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from reality_check.results import TrialRecord

#: What a record has for each fold.
BY_FOLD = (
    "fold_values",
    "fold_epochs",
    "follow_up_epochs",
    "epochs_spent",
    "cut_short",
    "curves",
)


def mark_superseded(
    trials: Iterable[TrialRecord], made_of: Sequence[Mapping[str, Any]] | None
) -> tuple[TrialRecord, ...]:
    """Return trials, marked as superseded if the data that they depend on have changed since.

    Args:
        trials: the trials.
        made_of: the present data, by trial index; ``None`` if no trial can be superseded.
    """
    made_of = json.loads(json.dumps(made_of))  # in the form that the storage returns
    return tuple(
        dataclasses.replace(trial, superseded=True) if _is_superseded(trial, made_of) else trial
        for trial in trials
    )


def _is_superseded(trial: TrialRecord, made_of: Sequence[Mapping[str, Any]] | None) -> bool:
    """Return whether the data that a trial depends on have changed since its start."""
    if trial.made_of is None or made_of is None:
        return False
    index = trial.trial_index or 0
    # Only recorded keys are compared, since an earlier version recorded fewer. The list is empty if
    # the study no longer has that index.
    current = [
        {key: data[key] for key in data.keys() & trial.made_of}
        for data in made_of[index : index + 1]
    ]
    return current != [trial.made_of]


def complete_by_index(
    trials: Sequence[TrialRecord], indices: Sequence[int]
) -> dict[int, TrialRecord]:
    """Return the complete attempts by trial index, for these indices."""
    complete: dict[int, TrialRecord] = {}
    for trial in trials:
        index = trial.trial_index
        if trial.state != "complete" or trial.superseded:
            continue
        if index is not None and index in indices:
            complete.setdefault(index, trial)  # the earliest counts
    return dict(sorted(complete.items()))


def joined(parts: Sequence[TrialRecord], folds: Sequence[Sequence[int]]) -> TrialRecord:
    """Return the record of a trial that was trained in parts, each on some of the folds."""
    lists: dict[str, Any] = {}
    for name in BY_FOLD:
        values = (
            zip(numbers, getattr(p, name), strict=False)
            for p, numbers in zip(parts, folds, strict=True)
        )
        lists[name] = [value for _, value in sorted(dict(itertools.chain(*values)).items())]
    last, scores = parts[-1], lists["fold_values"]  # only the last part may have diverged
    return dataclasses.replace(
        parts[0],
        value=fmean(scores) if scores and last.diverged is None else last.value,
        diverged=last.diverged,
        seconds=sum(part.seconds or 0.0 for part in parts),
        **lists,
    )


def best_trial(trials: Mapping[int, TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest value, or ``None`` if all diverged or there is none."""
    return next(iter(ranked_trials(trials)), None)


def ranked_trials(trials: Mapping[int, TrialRecord]) -> list[TrialRecord]:
    """Return the trials that did not diverge, best first; equal ones in order of their index."""
    sound = [trial for trial in trials.values() if trial.diverged is None]
    return sorted(sound, key=lambda trial: -(trial.value or 0.0))
