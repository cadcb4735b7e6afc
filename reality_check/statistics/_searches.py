"""Estimates over searches of the score of a loss that is tuned with a given budget.

``docs/inference.md`` defines this score, and says why retrainings of one winner do not estimate it.
:mod:`._subsets` has the estimator for one search of independent draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import nctdtr, ndtri

from reality_check.statistics._differences import (
    MIN_TESTED,
    Comparison,
    Difference,
    holm_of_known,
    satterthwaite,
    t_difference,
)
from reality_check.statistics._intervals import (
    CONFIDENCE,
    Estimate,
    jackknife_error,
    t_interval,
    t_quantile,
    variance,
)


@dataclass(frozen=True)
class Shares:
    """Variances of a test score by their cause.

    Attributes:
        search: variance between the expected scores of the winners of searches, or the variance by
            search and training together where they cannot be separated; ``None`` if unknown.
        training: variance between trainings of one winner; 0 where ``search`` contains it, and
            ``None`` if unknown.
        common: the share of the variance that two methods have in common, which their difference
            does not contain.
    """

    search: float | None
    training: float | None
    common: float = field(default=0.0, repr=False)


#: Probability of finding the smallest detectable difference.
_POWER = 0.8
#: Logarithm of the largest factor that :func:`times_to_detect` tries.
_MAX_LOG_FACTOR = math.log(1000)


def over_searches(runs: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean of the means of searches, with its t-interval.

    The unit is the search: the K means are independent, whatever the sampler does within a search,
    and each contains the luck of the search and of the retraining.

    Args:
        runs: for each search, the values of the reproductions of its winner, at least one.

    Returns:
        The estimate; it has no interval for a single search.
    """
    return t_interval([t_interval(values).mean for values in runs])


def skew_allowance(trials: int) -> float:
    """Return the factor that widens the t-interval over searches of ``trials`` trials each.

    Searches have bad luck more often than good luck, short ones even more so: on banks of real
    trials, 90 to 96 % of plain t-intervals contained the truth. The factor 1 + 1 / N makes this 93
    to 97 %, by calibration rather than by a theorem; see docs/calibration.md.
    """
    return 1 + 1 / trials


def allow_for_skew(estimate: Estimate, trials: int) -> Estimate:
    """Return an estimate over searches with its interval widened by :func:`skew_allowance`.

    The error, and so every comparison, is unchanged: the difference of two means is not skewed.

    Args:
        estimate: an estimate over searches.
        trials: number of trials of each search.
    """
    if estimate.half_width is None:
        return estimate
    return replace(estimate, half_width=skew_allowance(trials) * estimate.half_width)


def variance_shares(runs: Sequence[Sequence[float]]) -> Shares:
    """Return the variance between searches, and the variance between trainings of one winner.

    The variance between trainings, ``s²(within)``, is pooled over searches. The variance between
    searches is that of means over R trainings, minus ``s²(within) / R`` (averaged over searches if
    R differs). A negative result is replaced by 0.

    Args:
        runs: for each search, the values of the reproductions of its winner, at least one.

    Returns:
        The variances; ``search`` is ``None`` for one search, and both are ``None`` if no winner was
        trained twice.
    """
    estimates = [t_interval(values) for values in runs]
    trained_twice = [(v, e.mean) for v, e in zip(runs, estimates, strict=True) if e.n > 1]
    if not trained_twice:
        return Shares(None, None)
    squares = math.fsum(
        variance(values, mean) * (len(values) - 1) for values, mean in trained_twice
    )
    within = squares / sum(len(values) - 1 for values, _ in trained_twice)
    if len(runs) < 2:
        return Shares(None, within)
    means = [estimate.mean for estimate in estimates]
    between = variance(means, math.fsum(means) / len(means))
    from_training = within * math.fsum(1 / estimate.n for estimate in estimates) / len(runs)
    return Shares(max(0.0, between - from_training), within)


def estimate_difference(first: Estimate, second: Estimate, shared: float = 0.0) -> Difference:
    """Return ``first - second``, with its interval and test.

    Two independent estimates have Welch's error, with Satterthwaite's degrees of freedom. Where
    units weigh unequally (all subsets of a search) the tails of that test are too heavy, so that it
    has at most the degrees of one of both estimates. The joint jackknife deletes unit k of both at
    once, so that the luck which the units of one number share is taken off: the draws of trials,
    the weights of networks; for means of values it is the paired t-test. It is used where most of
    the draws are shared, with the effective number of trials as degrees of freedom; and where fewer
    are, of units of unequal weights. Searches that share few draws would lose degrees of freedom
    for little, but Welch's error is too small if a draw is lucky for one method and unlucky for the
    other; so the larger one of both errors is used.
    ``docs/calibration.md`` (the test of a pair) compares these rules.

    Args:
        first: estimate of one method.
        second: estimate of the other one; their kinds and degrees of freedom may differ.
        shared: the share of hyper-parameters, from 0 to 1, whose draws units of the same number
            have in common. Above 0, both estimates must have the same units.
    """
    mean, n = first.mean - second.mean, (first.n, second.n)
    if first.error is None or second.error is None:
        return Difference(mean, None, None, n)
    assert first.degrees is not None
    assert second.degrees is not None
    u, v = first.error**2, second.error**2
    error, degrees = math.sqrt(u + v), satterthwaite(u, first.degrees, v, second.degrees)
    weighted = first.is_weighted or second.is_weighted
    if weighted:
        degrees = min(degrees, max(first.degrees, second.degrees))
    if shared:
        deleted = np.subtract(first.deleted, second.deleted)
        # Values that are equal up to rounding have no error.
        rounding = 1e-12 * np.abs(first.deleted).max()
        joint = float(jackknife_error(deleted)) if np.ptp(deleted) > rounding else 0.0
        if shared > 0.5:
            degrees = min(first.degrees + 1, second.degrees + 1, first.n - 1)
        error = joint if weighted or shared > 0.5 else max(error, joint)
    effective_n = first.effective_n, second.effective_n
    return replace(t_difference(mean, error, degrees, n), effective_n=effective_n)


def compare_estimates(
    estimates: Mapping[str, Mapping[str, Estimate]],
    shared: Callable[[str, str, str], float] = lambda *_: 0.0,
) -> dict[str, tuple[Comparison, ...]]:
    """Compare every pair of methods in each category; all tests have one Holm correction together.

    Args:
        estimates: the estimate of each method, by category. Methods whose mean is not finite are
            left out.
        shared: a function of the category and of two methods, see :func:`estimate_difference`.

    Returns:
        The comparisons by category, ordered by rank, so the best two methods come first.
    """
    found: dict[str, list[Comparison]] = {}
    for category, measured in estimates.items():
        known = {name: e for name, e in measured.items() if math.isfinite(e.mean)}
        pairs = itertools.combinations(sorted(known, key=lambda name: -known[name].mean), 2)
        found[category] = [
            Comparison(a, b, estimate_difference(known[a], known[b], shared(category, a, b)), None)
            for a, b in pairs
        ]
    p_values = [pair.difference.p_value for pairs in found.values() for pair in pairs]
    adjusted = iter(holm_of_known(p_values))
    tested = sum(p is not None for p in p_values)
    return {
        category: tuple(replace(pair, adjusted_p=next(adjusted), pairs=tested) for pair in pairs)
        for category, pairs in found.items()
    }


# -- planning ------------------------------------------------------------------------------------


def planned_error(shares: Shares, searches: int, reproductions: int) -> float:
    """Return the expected standard error of a mean over searches.

    Args:
        shares: variances of an earlier experiment, or of a bank of trials.
        searches: number of searches.
        reproductions: number of reproductions of each winner.

    Raises:
        ValueError: a variance is not known.
    """
    if shares.search is None or shares.training is None:
        raise ValueError(
            f"{shares} lacks a variance; it takes two searches, and two trainings of a winner."
        )
    return math.sqrt((shares.search + shares.training / reproductions) / searches)


def welch_degrees(degrees: float) -> float:
    """Return the expected degrees of freedom of Welch's test of two estimates of the same error.

    With d degrees of freedom each, Satterthwaite's formula gives 2 d (d + 1) / (d + 2) for two
    variances that differ only by chance. (2 d would be too optimistic for few searches: with 3, a
    difference would be found in 70 % of experiments instead of 80 %.)
    """
    return 2 * degrees * (degrees + 1) / (degrees + 2)


def smallest_detectable(error: float, degrees: float, pairs: int = 1) -> float:
    """Return the smallest true difference of two methods that 4 of 5 experiments find.

    The statistic has a noncentral t distribution.

    Args:
        error: standard error of the difference.
        degrees: its degrees of freedom.
        pairs: number of pairs tested together, by which Holm's first, strictest step divides the
            level.

    Returns:
        The difference; infinite for fewer than three units, whose differences are not tested.
    """
    if degrees < MIN_TESTED - 1:
        return math.inf
    confidence = 1 - (1 - CONFIDENCE) / pairs
    if math.isinf(degrees):
        return error * (t_quantile(degrees, confidence) + float(ndtri(_POWER)))
    critical = t_quantile(degrees, confidence)

    def excess_misses(noncentrality: float) -> float:
        """Return the share of experiments without a finding, minus the share that is allowed."""
        return float(nctdtr(degrees, noncentrality, critical)) - (1 - _POWER)

    return error * float(brentq(excess_misses, 0.0, critical + 20.0))


def times_to_detect(difference: Difference, gap: float, pairs: int = 1) -> float | None:
    """Return by which factor more units are needed to find a gap in four of five experiments.

    Args:
        difference: a measured difference. Its standard error is assumed to fall with the square
            root of the number of units.
        gap: the true difference to be found, in the unit of ``difference``.
        pairs: number of pairs tested together, see :func:`smallest_detectable`.

    Returns:
        The factor, at least 1; ``None`` if the difference has no error, or the factor is above
        1,000.
    """
    if not difference.error or difference.degrees is None:
        return None
    error, degrees = difference.error, difference.degrees

    def surplus(log_factor: float) -> float:
        """Return the smallest detectable difference minus ``gap`` for that many more units."""
        factor = math.exp(log_factor)
        more_degrees = max(degrees * factor, MIN_TESTED - 1)
        return smallest_detectable(error / math.sqrt(factor), more_degrees, pairs=pairs) - gap

    if surplus(0.0) <= 0:
        return 1.0
    if surplus(_MAX_LOG_FACTOR) > 0:
        return None
    return math.exp(float(brentq(surplus, 0.0, _MAX_LOG_FACTOR)))
