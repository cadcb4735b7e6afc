"""Optuna's samplers, seeded for each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from reality_check.utils.seeds import derive


def sampler_arguments(kind: str, startup_trials: int) -> dict[str, Any]:
    """All arguments that decide what is drawn, written out since defaults change."""
    if kind == "tpe":
        return {
            "n_startup_trials": startup_trials,
            "n_ei_candidates": 24,
            "multivariate": True,
            "constant_liar": True,
        }
    if kind == "gp":
        return {"n_startup_trials": startup_trials, "deterministic_objective": False}
    return {}


class IndexedSampler(BaseSampler):
    """A fresh sampler for every trial, seeded by its trial index.

    What trial index k draws depends on the study's seed, on k and on the trials known by then, and
    not on how often the worker was stopped before.
    """

    def __init__(self, kind: str, startup_trials: int, seed: int) -> None:
        self._kind = kind
        self._arguments = sampler_arguments(kind, startup_trials)
        self._seed = seed
        self._sampler: BaseSampler = self._fresh(0)

    def _fresh(self, trial_index: int) -> BaseSampler:
        seed = derive(self._seed, "sampler", trial_index) % 2**32
        classes = {
            "tpe": optuna.samplers.TPESampler,
            "gp": optuna.samplers.GPSampler,
            "random": optuna.samplers.RandomSampler,
        }
        sampler: BaseSampler = classes[self._kind](seed=seed, **self._arguments)
        return sampler

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._fresh(trial.user_attrs.get("trial_index", 0))
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)
