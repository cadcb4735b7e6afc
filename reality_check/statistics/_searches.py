"""Estimates over searches: the score of a loss that is tuned with a given budget.

``docs/inference.md`` defines the quantity and says why retrainings of one winner do not estimate
it. :mod:`._subsets` has the estimator for one search of independent draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    t_interval,
    t_quantile,
    variance,
)


@dataclass(frozen=True)
class Shares:
    """Where the variance of a test score comes from.

    Attributes:
        search: variance between the expected scores of the winners of searches, or of search and
            training together where the two are not separable; ``None`` where it is not known.
        training: variance between trainings of one winner; 0 where ``search`` contains it, and
            ``None`` where it is not known.
    """

    search: float | None
    training: float | None


#: The logarithm of the most times as many units that are tried.
_MOST_TIMES = math.log(1000)


def over_searches(runs: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean of the means of searches, with their t-interval.

    The unit is the search: the K means are independent whatever a sampler does within a search, and
    contain the luck of search and retraining alike.

    Args:
        runs: for each search, the values of the reproductions of its winner, at least one.

    Returns:
        No interval for one search.
    """
    return t_interval([t_interval(values).mean for values in runs])


def skew_allowance(trials: int) -> float:
    """Return the factor on Student's interval over searches of so many trials.

    Searches have bad luck more often than good, short ones the more so: with Student's alone 90 to
    96 % of intervals held on banks of real trials. With 1 + 1 / N it is 93 to 97 %, which is
    calibration and no theorem; see docs/calibration.md.
    """
    return 1 + 1 / trials


def allow_for_skew(estimate: Estimate, trials: int) -> Estimate:
    """Return an estimate over searches with the interval that holds as often as it says.

    The error, and so every comparison, stays as it is: the difference of two means is not skewed.

    Args:
        estimate: over searches.
        trials: of each search.
    """
    if estimate.half_width is None:
        return estimate
    return replace(estimate, half_width=skew_allowance(trials) * estimate.half_width)


def variance_shares(runs: Sequence[Sequence[float]]) -> Shares:
    """Return the variance between searches and that between trainings of one winner.

    ``s²(within)`` is pooled over searches. A mean over R trainings contains ``s²(within) / R`` of
    it, which is taken off the variance of the means (the mean of it over searches where R
    differs); what would be below 0 is 0.

    Args:
        runs: for each search, the values of the reproductions of its winner, at least one.

    Returns:
        ``search`` is ``None`` with one search, and both are where no winner was trained twice.
    """
    intervals = [t_interval(values) for values in runs]
    repeated = [(values, i.mean) for values, i in zip(runs, intervals, strict=True) if i.n > 1]
    if not repeated:
        return Shares(None, None)
    squares = math.fsum(variance(values, mean) * (len(values) - 1) for values, mean in repeated)
    within = squares / sum(len(values) - 1 for values, _ in repeated)
    if len(runs) < 2:
        return Shares(None, within)
    means = [interval.mean for interval in intervals]
    between = variance(means, math.fsum(means) / len(means))
    carried = within * math.fsum(1 / interval.n for interval in intervals) / len(runs)
    return Shares(max(0.0, between - carried), within)


def estimate_difference(first: Estimate, second: Estimate) -> Difference:
    """Return ``first - second`` of two independent estimates, with Welch's interval and test.

    Args:
        first: estimate of one method.
        second: of the other; the estimators and their degrees of freedom may differ.
    """
    mean, n = first.mean - second.mean, (first.n, second.n)
    if first.error is None or second.error is None:
        return Difference(mean, None, None, n)
    assert first.degrees is not None
    assert second.degrees is not None
    u, v = first.error**2, second.error**2
    degrees = satterthwaite(u, first.degrees, v, second.degrees)
    return t_difference(mean, math.sqrt(u + v), degrees, n)


def compare_estimates(estimates: Mapping[str, Estimate]) -> tuple[Comparison, ...]:
    """Compare every pair of methods; the best two come first, pairs follow the ranking.

    Args:
        estimates: of each method. Those whose mean is not finite are left out: nothing ranks them.
    """
    means = {
        name: estimate.mean for name, estimate in estimates.items() if math.isfinite(estimate.mean)
    }
    pairs = list(itertools.combinations(sorted(means, key=lambda m: -means[m]), 2))
    differences = [estimate_difference(estimates[a], estimates[b]) for a, b in pairs]
    adjusted = holm_of_known([d.p_value for d in differences])
    tested = sum(p is not None for p in adjusted)
    return tuple(
        Comparison(a, b, d, p, tested)
        for (a, b), d, p in zip(pairs, differences, adjusted, strict=True)
    )


# -- planning ------------------------------------------------------------------------------------


def planned_error(shares: Shares, searches: int, reproductions: int) -> float:
    """Return the standard error that a mean over searches is expected to have.

    Args:
        shares: variances of an earlier experiment, or of a bank of trials.
        searches: K.
        reproductions: R of each winner.

    Raises:
        ValueError: a variance is not known.
    """
    if shares.search is None or shares.training is None:
        raise ValueError(
            f"{shares} lacks a variance; it takes two searches, and two trainings of a winner."
        )
    return math.sqrt((shares.search + shares.training / reproductions) / searches)


def smallest_detectable(error: float, degrees: float, power: float = 0.8, pairs: int = 1) -> float:
    """Return the smallest true difference of two methods that is found with the given power.

    Welch's test of two estimates with the same error: t is noncentral, with Satterthwaite's degrees
    of two variances that are equal in truth and differ by chance, 2 d (d + 1) / (d + 2) for d of
    each. (Twice d promises too much of few searches: 3 would find what is named in 70 %, not 80.)

    Args:
        error: standard error of one method's estimate (:func:`planned_error`).
        degrees: its degrees of freedom, K - 1 for K searches.
        power: how often the difference is to be found.
        pairs: that are tested together: Holm's first step, the strictest, divides the level.

    Returns:
        Infinite for fewer than three searches, whose differences are not tested.
    """
    if degrees < MIN_TESTED - 1:
        return math.inf
    total, level = math.sqrt(2) * error, 1 - (1 - CONFIDENCE) / pairs
    if math.isinf(degrees):
        return total * (t_quantile(degrees, level) + float(ndtri(power)))
    degrees = 2 * degrees * (degrees + 1) / (degrees + 2)
    critical = t_quantile(degrees, level)

    def missed(noncentrality: float) -> float:
        return float(nctdtr(degrees, noncentrality, critical)) - (1 - power)

    return total * float(brentq(missed, 0.0, critical + 20.0))


def times_to_detect(difference: Difference, gap: float, pairs: int = 1) -> float | None:
    """Return how many times as many units it takes to find a gap in four of five experiments.

    Args:
        difference: with its standard error and degrees of freedom, estimated from as many units
            as it took; the error falls with the root of their number.
        gap: what is to be found, in the unit of the difference.
        pairs: that are tested together, see :func:`smallest_detectable`.

    Returns:
        At least 1; ``None`` without an error, and where it takes more than 1,000 times as many.
    """
    if not difference.error or difference.degrees is None:
        return None
    error, degrees = difference.error, difference.degrees

    def missed(logarithm: float) -> float:
        times = math.exp(logarithm)
        # Each of two equal sides has half of the degrees, and the error over √2.
        least = smallest_detectable(
            error / math.sqrt(2 * times), max(degrees / 2 * times, MIN_TESTED - 1), pairs=pairs
        )
        return least - gap

    if missed(0.0) <= 0:
        return 1.0
    if missed(_MOST_TIMES) > 0:
        return None
    return math.exp(float(brentq(missed, 0.0, _MOST_TIMES)))
