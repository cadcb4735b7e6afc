"""Optuna's samplers, seeded for each trial; the random draws depend on the parameter's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
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
    not on how often the worker was stopped before. A value drawn at random depends on
    ``seed_of_draws``, the parameter's name and k only: methods whose searches have the same one try
    the same values there, so that their difference is less a matter of luck.
    """

    def __init__(self, kind: str, startup_trials: int, seed: int, seed_of_draws: int) -> None:
        self._kind = kind
        self._startup_trials = startup_trials
        self._arguments = sampler_arguments(kind, startup_trials)
        self._seed = seed
        self._seed_of_draws = seed_of_draws
        self._trial_index = 0
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
        self._trial_index = trial.user_attrs.get("trial_index", 0)
        self._sampler = self._fresh(self._trial_index)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._trial_index < self._startup_trials:
            return {}
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
        """Draw what no model proposes: all of a random search and of the start-up trials."""
        seed = derive(self._seed_of_draws, param_name, self._trial_index)
        return _from_share(float(np.random.default_rng(seed).uniform()), param_distribution)

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


def _from_share(share: float, distribution: BaseDistribution) -> Any:
    """The value below which that share of a distribution lies, 0 <= share < 1."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(share * len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = float(distribution.low), float(distribution.high)
    if isinstance(distribution, IntDistribution):
        low, high = low - 0.5, high + 0.5  # every whole number has a share of its own
    value = low * (high / low) ** share if distribution.log else low + (high - low) * share
    if isinstance(distribution, IntDistribution):
        return min(max(round(value), distribution.low), distribution.high)
    return min(max(value, distribution.low), distribution.high)
