"""Every trial of a method: a table, and a line each through the axes of its parameters."""

from __future__ import annotations

import math
from typing import Any

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.sections.blocks import Axis, Folded, PlainTable, Trials
from reality_check.report.summary import completed, winner
from reality_check.report.text import counted, parameter, percent
from reality_check.results import MethodResults, TrialRecord
from reality_check.utils.text import duration


def trials_fold(method: MethodResults, metric: str = METRICS[PRIMARY]) -> Folded:
    """Return the trials of a method that searched, in their order.

    Args:
        method: that searched.
        metric: what chose among them.
    """
    value = f"validation {metric} (%)"
    trials = sorted(method.search, key=lambda trial: (trial.search, trial.trial_index))
    values = {name: [trial.params.get(name) for trial in trials] for name in method.searched}
    axes = [_axis(name, own, name in method.logarithmic) for name, own in values.items()]
    scores = [100 * (t.value or 0.0) if completed(t) else None for t in trials]
    axes.append(_axis(value, scores, False))
    best = winner(method)
    block = Trials(_table(method, trials, value), tuple(axes), trials.index(best) if best else None)
    return Folded(counted(len(trials), "trial"), (block,), headed=False)


def _axis(name: str, values: list[Any], logarithmic: bool) -> Axis:
    """Numbers lie between the lowest and the highest, choices side by side."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str | bool) for value in known):
        choices = list(dict.fromkeys(map(str, known)))
        spots = [None if v is None else float(choices.index(str(v))) for v in values]
        return Axis(name, choices[0], choices[-1], _between(spots))
    scale = math.log10 if logarithmic else float
    ends = [parameter(float(f"{end:.4g}")) for end in (min(known), max(known))] if known else []
    low, high = ends or ("", "")
    return Axis(name, low, high, _between([None if v is None else scale(v) for v in values]))


def _between(spots: list[float | None]) -> tuple[float | None, ...]:
    """From 0 to 1; in the middle where all are the same."""
    known = [spot for spot in spots if spot is not None]
    low, width = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return tuple(None if s is None else ((s - low) / width if width else 0.5) for s in spots)


def _table(method: MethodResults, trials: list[TrialRecord], value: str) -> PlainTable:
    several = len({trial.search for trial in trials}) > 1
    wordy = {
        name
        for name in method.searched
        if any(isinstance(t.params.get(name), str | bool | None) for t in trials)
    }
    rows = tuple(
        (
            *((str(trial.search),) if several else ()),
            str(trial.trial_index),
            percent(trial.value),
            *(parameter(trial.params.get(name, "")) for name in method.searched),
            duration(trial.seconds),
            "diverged" if trial.diverged is not None else trial.state,
        )
        for trial in trials
    )
    header = (
        *(("Search",) if several else ()), "Trial", value, *method.searched, "Time", "State",
    )  # fmt: skip
    return PlainTable(f"Trials of {method.name}.", header, rows, words=(header[0], *wordy, "State"))
