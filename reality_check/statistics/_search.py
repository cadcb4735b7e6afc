"""What a search would have found with fewer trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, gammaln

from reality_check.statistics._intervals import CONFIDENCE

Array = NDArray[np.float64]

#: Simulated searches for the level of a band.
_DRAWS = 2000


def expected_best(values: Sequence[float], replace: bool = False) -> Array:
    """Return the expected best of n trials, for n from 1 to N.

    Of the N values, n are drawn without replacement: the unbiased estimate of Tang et al. (2020),
    "Showing your work doesn't always work": the i-th smallest value is the best of them with
    probability ``C(i - 1, n - 1) / C(N, n)``. With ``replace`` the draws are independent, with
    ``(i / N)^n - ((i - 1) / N)^n``: Dodge et al. (2019), "Show your work: improved reporting of
    experimental results", which is too low.

    Both take the trials as independent draws of the same distribution. A sampler that learns puts
    its better trials last, so the curve is that of the same trials in a random order.

    Args:
        values: of the N trials, at least one; a diverged trial counts with its value.
        replace: which of the two.

    Returns:
        Shape (N,).

    Raises:
        ValueError: there is no value.
    """
    if not len(values):
        raise ValueError("values is empty; the best of a search needs at least one trial.")
    return np.asarray(_weights(len(values), replace) @ np.sort(np.asarray(values, dtype=float)))


def expected_best_band(values: Sequence[float], seed: int = 0) -> tuple[Array, Array]:
    """Return bounds of the expected best of n independent trials, for n from 1 to N.

    They hold for all n at once and any distribution of scores between 0 and 1: the distribution
    function lies within the equal-tailed band of Lourie, Cho and He (2024), "Show your work with
    confidence" (each order statistic within the same quantiles of its Beta distribution, wide
    enough for all), and so does ``1 - ∫ F(y)^n dy``.

    Args:
        values: of the N trials.
        seed: of the simulation that finds these quantiles.

    Returns:
        Lower and upper bounds, each of shape (N,).
    """
    trials = len(values)
    i = np.arange(1, trials + 1)
    uniform = np.sort(np.random.default_rng(seed).random((_DRAWS, trials)), axis=1)
    below = betainc(i, trials + 1 - i, uniform)
    level = np.quantile(2 * np.minimum(below, 1 - below).min(axis=1), 1 - CONFIDENCE)
    least, most = (betaincinv(i, trials + 1 - i, p) for p in (level / 2, 1 - level / 2))
    steps = np.diff(np.concatenate([[0.0], np.sort(np.asarray(values, dtype=float)), [1.0]]))
    low, high = (
        np.asarray(1 - (np.concatenate(function) ** i[:, None]) @ steps, dtype=np.float64)
        for function in ((most, [1.0]), ([0.0], least))
    )
    return low, high


@dataclass(frozen=True)
class Lead:
    """The method with the highest expected best from ``first`` to ``last`` trials."""

    method: str
    first: int
    last: int


def leaders_by_budget(curves: Mapping[str, Array]) -> list[Lead]:
    """Return who leads on expected best validation with how many trials.

    Args:
        curves: of each method, by number of trials from 1 on; compared as far as the shortest goes.
    """
    length = min((len(curve) for curve in curves.values()), default=0)
    leads: list[Lead] = []
    for count in range(1, length + 1):
        best = max(curves, key=lambda method: curves[method][count - 1])
        if leads and leads[-1].method == best:
            leads[-1] = Lead(best, leads[-1].first, count)
        else:
            leads.append(Lead(best, count, count))
    return leads


def _weights(trials: int, replace: bool) -> Array:
    """Row n: the probability of each sorted value to be the best of n draws, shape (N, N)."""
    n = np.arange(1, trials + 1)[:, None]
    i = np.arange(1, trials + 1)[None, :]
    if replace:
        return np.asarray((i / trials) ** n - ((i - 1) / trials) ** n)
    with np.errstate(invalid="ignore"):
        logs = _log_choose(i - 1, n - 1) - _log_choose(trials, n)
    return np.where(i >= n, np.exp(logs), 0.0)


def _log_choose(total: NDArray | int, chosen: NDArray) -> Array:
    total = np.asarray(total)
    left = np.maximum(total - chosen, 0)
    return np.asarray(gammaln(total + 1) - gammaln(chosen + 1) - gammaln(left + 1))
