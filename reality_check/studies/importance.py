"""The importance of the hyper-parameters of a search by functional ANOVA, compared with noise.

Source: Hutter, Hoos and Leyton-Brown (2014), "An efficient approach for assessing hyperparameter
importance": a random forest predicts the value from the parameters, and the variance of its
prediction over the whole range is divided among them.
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
from reality_check.results import Importance, TrialRecord, ranking_scores

#: With fewer trials the forest learns nothing.
FEWEST = 20
_NUM_TREES = 16
#: Deeper trees fit the noise of so few trials, and take three times as long.
_MAX_DEPTH = 3
#: Number of shuffles; noise exceeds their highest share in at most one search of twenty.
_NUM_SHUFFLES = 19


def parameter_importance(
    space: Mapping[str, Searched], trials: Sequence[TrialRecord]
) -> Importance | None:
    """Return the share of the variance of the validation score that each parameter explains alone.

    The shares are compared with noise: the largest share after random shuffles of the scores.
    Ranges with a logarithmic scale are compared on that scale. Diverged trials are left out, since
    their value of 0 would dominate everything else.

    Returns:
        The importance, or ``None`` if there are fewer than two parameters, fewer than 20 complete
        trials that have not diverged, or no two different values.
    """
    sound = [t for t in trials if t.state == "complete" and not t.diverged]
    values = ranking_scores(sound)
    if len(space) < 2 or len(sound) < FEWEST or len(set(values)) < 2:
        return None
    params = [
        {name: _to_search_scale(space[name], t.params[name]) for name in space} for t in sound
    ]
    distributions = {name: _distribution(value) for name, value in space.items()}
    shares = _variance_shares(distributions, params, values)
    generator = random.Random(0)
    noise = 0.0
    for _ in range(_NUM_SHUFFLES):
        shuffled = generator.sample(values, len(values))
        noise = max(noise, *_variance_shares(distributions, params, shuffled).values())
        if noise >= max(shares.values()):
            break  # no parameter stands out, whatever the other shuffles give
    return Importance(shares, noise, len(sound))


def _variance_shares(
    distributions: dict[str, BaseDistribution],
    params: Sequence[dict[str, Any]],
    values: Sequence[float],
) -> dict[str, float]:
    """Return the share of the variance of ``values`` that each parameter explains, by name.

    Optuna computes it by functional ANOVA from a study, here with one trial for each value.
    """
    study = optuna.create_study(storage=optuna.storages.InMemoryStorage())
    for trial_params, value in zip(params, values, strict=True):
        study.add_trial(
            optuna.trial.create_trial(params=trial_params, distributions=distributions, value=value)
        )
    shares = optuna.importance.FanovaImportanceEvaluator(
        n_trees=_NUM_TREES, max_depth=_MAX_DEPTH, seed=0
    ).evaluate(study)
    return {name: float(share) for name, share in shares.items()}


def _to_search_scale(searched: Searched, value: Any) -> Any:
    return math.log10(value) if isinstance(searched, Range) and searched.log else value


def _distribution(value: Searched) -> BaseDistribution:
    """Return the distribution of a parameter, on the scale of :func:`_to_search_scale`."""
    if not isinstance(value, Range):
        return CategoricalDistribution(value.choices)
    if value.log:
        return FloatDistribution(math.log10(value.low), math.log10(value.high))
    if value.integer:
        return IntDistribution(int(value.low), int(value.high))
    return FloatDistribution(value.low, value.high)
