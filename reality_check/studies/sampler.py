"""Optuna's samplers, seeded for each trial and, for random draws, each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
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

from reality_check.config.classes import build, find_class
from reality_check.config.search import SAMPLERS, Search
from reality_check.config.values import Range, Searched
from reality_check.utils.errors import UsageError
from reality_check.utils.seeds import derive


def sampler_arguments(
    kind: str, startup_trials: int, sampler_options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return all arguments that affect what is drawn, since Optuna's defaults may change.

    Args:
        kind: the sampler, by its short name or import path.
        startup_trials: the number of random trials before the sampler starts to model.
        sampler_options: the arguments that the protocol gives.
    """
    defaults: dict[str, dict[str, Any]] = {
        "tpe": {"n_ei_candidates": 24, "multivariate": True, "constant_liar": True},
        "gp": {"deterministic_objective": False},
        "cmaes": {"warn_independent_sampling": False},
    }
    startup = {"n_startup_trials": startup_trials} if kind in defaults else {}
    return {**startup, **defaults.get(kind, {}), **(sampler_options or {})}


def build_sampler(
    kind: str, startup_trials: int, seed: int, sampler_options: Mapping[str, Any] | None = None
) -> BaseSampler:
    """Build a sampler by a short name of Optuna's samplers, or by import path.

    Raises:
        UsageError: the sampler does not exist, is not a sampler, or refuses the arguments.
    """
    label = f"sampler {kind}"
    extra: dict[str, Any] = {"seed": seed}  # passed to classes that take it
    if kind in SAMPLERS:
        cls = getattr(optuna.samplers, SAMPLERS[kind])
    else:
        cls = find_class(kind, "sampler")
        extra["n_startup_trials"] = startup_trials
    sampler = build(cls, sampler_arguments(kind, startup_trials, sampler_options), label, extra)
    if not isinstance(sampler, BaseSampler):
        raise UsageError(
            f"{label} must be a subclass of optuna.samplers.BaseSampler; got "
            f"{type(sampler).__name__}."
        )
    if kind == "cmaes" and find_spec("cmaes") is None:
        raise UsageError(f"{label} needs the package cmaes; write pip install cmaes.")
    return sampler


def check_sampler(search: Search) -> None:
    """Make sure that a protocol's sampler can be built."""
    build_sampler(search.sampler, search.startup_trials, 0, search.sampler_arguments)


class IndexedSampler(BaseSampler):
    """A fresh sampler for every trial, seeded by its trial index.

    The values of trial index k depend on ``seed``, on k and on the trials known by then, but not on
    how often the worker was stopped before. There are two seeds: ``seed`` differs between methods
    and seeds the sampler's model. ``draw_seed`` is the same for methods that are compared: a value
    that is drawn at random depends only on it, on the parameter's name and on k. So these methods
    try the same random values, and chance affects their difference less.

    Args:
        kind: the sampler, by its short name or import path.
        startup_trials: the number of trials that are drawn at random.
        seed: the seed of the model.
        draw_seed: the seed of random draws. With ``qmc``, trial k is the k-th point of a Sobol
            sequence that is scrambled (Owen) by this seed.
        sampler_options: the arguments that the protocol gives to the sampler.
        parameter_names: the names of all parameters, which are the dimensions of ``qmc``.
    """

    def __init__(
        self,
        kind: str,
        startup_trials: int,
        seed: int,
        draw_seed: int,
        sampler_options: Mapping[str, Any] | None = None,
        parameter_names: Sequence[str] = (),
    ) -> None:
        self._kind = kind
        self._startup_trials = startup_trials
        self._sampler_options = sampler_options
        self._parameter_names = list(parameter_names)
        self._seed = seed
        self._draw_seed = draw_seed
        self._trial_index = 0
        self._sampler: BaseSampler = self._new_sampler(0)

    def _new_sampler(self, trial_index: int) -> BaseSampler:
        seed = derive(self._seed, "sampler", trial_index) % 2**32
        return build_sampler(self._kind, self._startup_trials, seed, self._sampler_options)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._trial_index = trial.user_attrs.get("trial_index", 0)
        self._sampler = self._new_sampler(self._trial_index)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._trial_index < self._startup_trials:
            return {}
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a value without a model, as in random searches and start-up trials."""
        if self._kind == "qmc":
            return _quantile(
                self._sobol_point()[self._parameter_names.index(param_name)], param_distribution
            )
        seed = derive(self._draw_seed, param_name, self._trial_index)
        return _quantile(float(np.random.default_rng(seed).uniform()), param_distribution)

    def _sobol_point(self) -> list[float]:
        """Return the trial's point, with a coordinate in [0, 1) for each parameter."""
        from scipy.stats.qmc import Sobol  # scipy.stats takes a second to import

        points = Sobol(len(self._parameter_names), rng=derive(self._draw_seed, "sobol"))
        if self._trial_index:  # scipy 1.17 fails to skip 0 points
            points.fast_forward(self._trial_index)
        return points.random(1)[0].tolist()

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


def _quantile(share: float, distribution: BaseDistribution) -> Any:
    """Return the quantile of a distribution at ``share``, where 0 <= share < 1."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[int(share * len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = float(distribution.low), float(distribution.high)
    if isinstance(distribution, IntDistribution):
        low, high = low - 0.5, high + 0.5  # every integer gets an equal share
    value = low * (high / low) ** share if distribution.log else low + (high - low) * share
    # Rounding may lead out of the range.
    if isinstance(distribution, IntDistribution):
        return min(max(round(value), distribution.low), distribution.high)
    return min(max(value, distribution.low), distribution.high)


def record_params(
    trial: optuna.Trial, params: Mapping[str, Any], space: Mapping[str, Searched]
) -> None:
    """Record the fixed parameters of a trial in Optuna as if they had been drawn.

    The trial was enqueued with these values, so Optuna draws no others.
    """
    for name, value in params.items():
        if name in space:
            suggest(trial, name, space[name])
        elif isinstance(value, int):  # numbers of epochs
            trial.suggest_int(name, value, value)


def suggest(trial: optuna.Trial, name: str, value: Searched) -> Any:
    """Draw a value of a searched parameter, or return that with which the trial was enqueued."""
    if not isinstance(value, Range):
        return trial.suggest_categorical(name, value.choices)
    if value.integer:
        return trial.suggest_int(name, int(value.low), int(value.high), log=value.log)
    return trial.suggest_float(name, value.low, value.high, log=value.log)
