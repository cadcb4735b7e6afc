"""What the trainings of an experiment took: hours of processes, or of GPUs, by kind of device."""

from __future__ import annotations

from collections.abc import Mapping

from reality_check.results import Cost
from reality_check.search import FrozenTrial, Stage


def spent(trial: FrozenTrial) -> tuple[str, float]:
    """The kind of device (``cuda``, ``cpu``, ``unknown``) of an attempt, and its hours.

    Of an attempt that runs, or lost its worker, the hours count up to the last heartbeat.
    """
    notes = trial.user_attrs
    kind = notes.get("device", "unknown").partition(":")[0]
    return kind, notes.get("seconds", 0.0) * notes.get("processes", 1) / 3600


def costs(stages: Mapping[tuple[str, str], Stage]) -> tuple[Cost, ...]:
    """What each stage of each method took on each kind of device, over all attempts.

    Args:
        stages: by (method, stage); what belongs to no method has the name ``""``.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    for (method, stage), study in stages.items():
        for trial in study.trials():
            kind, hours = spent(trial)
            if hours:
                found.setdefault((method, stage, kind), []).append(hours)
    return tuple(Cost(*key, len(hours), sum(hours)) for key, hours in found.items())
