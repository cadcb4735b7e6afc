"""What the trainings of an experiment took: hours of processes, or of GPUs, by kind of device."""

from __future__ import annotations

from collections.abc import Mapping

from reality_check.config.metrics import Stage
from reality_check.results import Cost
from reality_check.studies.study import Study


def costs(stages: Mapping[tuple[str, Stage], Study]) -> tuple[Cost, ...]:
    """What each stage of each method took on each kind of device, over all attempts.

    Args:
        stages: by (method, stage); what belongs to no method has the name ``""``.
    """
    hours: dict[tuple[str, str, str], list[float]] = {}
    for (method, stage), study in stages.items():
        for trial in study.trials():
            if trial.hours:
                hours.setdefault((method, stage, trial.device_kind), []).append(trial.hours)
    return tuple(Cost(*key, len(spent), sum(spent)) for key, spent in hours.items())
