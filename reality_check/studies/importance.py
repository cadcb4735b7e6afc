"""Importance of the hyper-parameters of a search: functional ANOVA, compared with noise.

Source: Hutter, Hoos and Leyton-Brown (2014), "An efficient approach for assessing hyperparameter
importance": a random forest learns the value from the parameters, and its variance over the whole
range is divided among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from reality_check.config.values import Range, Searched
from reality_check.results import Importance, TrialRecord

#: With fewer trials the forest learns nothing.
FEWEST = 20
_TREES = 16
#: Deeper trees learn the noise of so few trials, and take three times as long.
_DEPTH = 3
#: Noise exceeds the highest share of so many shuffles in at most one search of twenty.
_SHUFFLES = 19


def parameter_importance(
    space: Mapping[str, Searched], trials: Sequence[TrialRecord]
) -> Importance | None:
    """Return the share of the variance of the validation score that each parameter explains alone.

    Ranges that are searched on a logarithmic scale count on it. Diverged trials are left out: a
    value of 0 would drown everything else.

    Returns:
        ``None`` with fewer than two parameters or than 20 trials that are complete and have not
        diverged, or where all of them have the same value.
    """
    able = [t for t in trials if t.state == "complete" and t.value is not None and not t.diverged]
    values = [trial.value for trial in able if trial.value is not None]
    if len(space) < 2 or len(able) < FEWEST or len(set(values)) < 2:
        return None
    params = [{name: _on_scale(space[name], t.params[name]) for name in space} for t in able]
    distributions = {name: _distribution(value) for name, value in space.items()}
    shares = _shares(distributions, params, values)
    generator = random.Random(0)
    noise = 0.0
    for _ in range(_SHUFFLES):
        shuffled = generator.sample(values, len(values))
        noise = max(noise, *_shares(distributions, params, shuffled).values())
        if noise >= max(shares.values()):
            break  # nothing stands out, whatever the others are
    return Importance(shares, noise, len(able))


def _shares(
    distributions: dict[str, BaseDistribution],
    params: Sequence[dict[str, Any]],
    values: Sequence[float],
) -> dict[str, float]:
    study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
    for given, value in zip(params, values, strict=True):
        study.add_trial(
            optuna.trial.create_trial(params=given, distributions=distributions, value=value)
        )
    shares = optuna.importance.FanovaImportanceEvaluator(
        n_trees=_TREES, max_depth=_DEPTH, seed=0
    ).evaluate(study)
    return {name: float(share) for name, share in shares.items()}


def _on_scale(value: Searched, given: Any) -> Any:
    return math.log10(given) if isinstance(value, Range) and value.log else given


def _distribution(value: Searched) -> BaseDistribution:
    if not isinstance(value, Range):
        return CategoricalDistribution(value.choices)
    if value.log:
        return FloatDistribution(math.log10(value.low), math.log10(value.high))
    if value.integer:
        return IntDistribution(int(value.low), int(value.high))
    return FloatDistribution(value.low, value.high)
