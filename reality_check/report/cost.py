"""What the trainings of an experiment took: hours of processes, or of GPUs, by kind of device."""

from __future__ import annotations

from collections.abc import Mapping

from reality_check.results import Cost
from reality_check.studies.progress import spent
from reality_check.studies.study import Study


def costs(stages: Mapping[tuple[str, str], Study]) -> tuple[Cost, ...]:
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
