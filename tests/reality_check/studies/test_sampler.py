from __future__ import annotations

from typing import Any

import optuna
import pytest

from reality_check.studies.sampler import IndexedSampler, sampler_arguments
from reality_check.utils.seeds import derive

TPE = {
    "n_startup_trials": 3,
    "n_ei_candidates": 24,
    "multivariate": True,
    "constant_liar": True,
}
GP = {"n_startup_trials": 3, "deterministic_objective": False}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [("tpe", "TPESampler", TPE), ("gp", "GPSampler", GP), ("random", "RandomSampler", {})],
)
def test_each_trial_has_a_sampler_of_its_own_seed_with_all_that_is_recorded(
    kind: str, name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    original = getattr(optuna.samplers, name)

    def make(**keywords: Any) -> Any:
        made.append(keywords)
        return original(**keywords)

    monkeypatch.setattr(optuna.samplers, name, make)
    sampler = IndexedSampler(kind, 3, seed=5, seed_of_draws=6)
    study = optuna.create_study(sampler=sampler)
    for index in (7, 2):
        study.enqueue_trial({}, user_attrs={"trial_index": index})
        study.ask()
        assert made[-1] == {"seed": derive(5, "sampler", index) % 2**32, **arguments}
    assert sampler_arguments(kind, 3) == arguments
