"""Studies whose trials are written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.storages import BaseStorage

from reality_check.config.metrics import Stage
from reality_check.results import TrialRecord
from reality_check.studies.attempts import complete_by_index
from reality_check.studies.plan import Drawn, Given, PlannedStudy, StudyKey, StudyState
from reality_check.studies.study import Study


def open_study(
    storage: BaseStorage,
    name: str,
    num_trials: int,
    seed: int,
    space: Mapping[str, Any] | None = None,
    *,
    sampler: str = "random",
    startup_trials: int = 1,
    sampler_arguments: Mapping[str, Any] | None = None,
    draw_seed: int | None = None,
    fixed: Sequence[Mapping[str, Any] | None] | None = None,
    **state: Any,
) -> Study:
    """Open a study that draws from ``space``, or whose parameters are ``fixed``."""
    parameters: Drawn | Given = Given()
    if fixed is None:
        draws = seed if draw_seed is None else draw_seed
        parameters = Drawn(sampler, sampler_arguments or {}, startup_trials, draws)
    planned = PlannedStudy(StudyKey(name, Stage.SEARCH), num_trials, 1, seed, parameters)
    given = StudyState(planned, None, range(num_trials), space or {}, given=fixed, **state)
    return Study(storage, name, given, lambda: space or {})


def complete(study: Study) -> dict[int, TrialRecord]:
    """The complete attempts by trial index."""
    return complete_by_index(study.trials(), study.indices)


def is_complete(study: Study) -> bool:
    return len(complete(study)) == len(study.indices)
