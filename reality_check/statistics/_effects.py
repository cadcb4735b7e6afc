"""How large a difference between two methods is, apart from whether it is certain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtri

from reality_check.statistics._intervals import CONFIDENCE, Bounds, t_interval, variance

#: No standardised difference from fewer values: its interval would hold nearly anything.
MIN_STANDARDISED = 5

#: Beyond this t, scipy's noncentral t loses its digits.
_HUGE = 100.0


def cohens_d(first: Sequence[float], second: Sequence[float]) -> Bounds | None:
    """Return the difference of the means in units of the pooled standard deviation.

    ``d = (mean(first) - mean(second)) / s``, s² pooled over both with ``n₁ + n₂ - 2`` degrees of
    freedom. The interval holds every d for which the observed t would not be extreme: t is
    noncentral with noncentrality ``d / √(1/n₁ + 1/n₂)`` (Cumming and Finch 2001, "A primer on the
    understanding, use, and calculation of confidence intervals that are based on central and
    noncentral distributions").

    Args:
        first: values of one method, one per reproduction.
        second: values of the other method; the sizes may differ.

    Returns:
        ``None`` where a sample has fewer than :data:`MIN_STANDARDISED` values, a value is not
        finite or nothing spreads.
    """
    a, b = t_interval(first), t_interval(second)
    if a.half_width is None or b.half_width is None or min(a.n, b.n) < MIN_STANDARDISED:
        return None
    degrees = a.n + b.n - 2
    within = (a.n - 1) * variance(first, a.mean) + (b.n - 1) * variance(second, b.mean)
    spread = _spread(within / degrees, [*first, *second])
    if spread == 0:
        return None
    return _standardised((a.mean - b.mean) / spread, degrees, 1 / a.n + 1 / b.n)


def paired_effect(first: Sequence[float], second: Sequence[float]) -> Bounds | None:
    """Return Cohen's d_z: the mean of ``first - second`` in units of its standard deviation.

    The interval is that of :func:`cohens_d` with ``n - 1`` degrees of freedom and noncentrality
    ``d_z √n``. Pairs that rise and fall together make d_z larger than d.

    Args:
        first: values of one method, one per common seed.
        second: values of the other method on the same seeds, in the same order.

    Returns:
        ``None`` for fewer than :data:`MIN_STANDARDISED` pairs, where a value is not finite or no
        difference spreads.
    """
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    interval = t_interval(gaps)
    if interval.half_width is None or interval.n < MIN_STANDARDISED:
        return None
    spread = _spread(variance(gaps, interval.mean), [*first, *second])
    if spread == 0:
        return None
    return _standardised(interval.mean / spread, interval.n - 1, 1 / interval.n)


def probability_of_improvement(first: Sequence[float], second: Sequence[float]) -> Bounds | None:
    """Return the probability that a run of the first method is above one of the second.

    The estimate is the share of all pairs of runs in which the first is higher, ties counted half
    (Mann and Whitney's U over n₁n₂). The interval is Newcombe's (2006, "Confidence intervals for an
    effect size measure based on the Mann-Whitney statistic", part 2, method 5): the p at which the
    estimate would be the quantile away, with the variance of Hanley and McNeil in which both sizes
    are replaced by their mean. Unlike a bootstrap it has a width where the samples do not overlap.

    Args:
        first: values of one method, one per reproduction.
        second: values of the other method; the sizes may differ.

    Returns:
        ``None`` where a sample is empty or a value is not finite.
    """
    m, n = len(first), len(second)
    if not m * n or not all(map(math.isfinite, (*first, *second))):
        return None
    wins = sum((a > b) + (a == b) / 2 for a in first for b in second)
    share = wins / (m * n)
    factor, mean_size = ndtri((1 + CONFIDENCE) / 2) ** 2 / (m * n), (m + n) / 2

    def beyond(p: float) -> float:
        spread = 1 + (mean_size - 1) * ((1 - p) / (2 - p) + p / (1 + p))
        return float((share - p) ** 2 - factor * p * (1 - p) * spread)

    # 0 and 1 are themselves solutions where all or no pairs are won; the other one is wanted.
    low = 0.0 if share == 0 else brentq(beyond, 0.0, min(share, 1 - 1e-12))
    high = 1.0 if share == 1 else brentq(beyond, max(share, 1e-12), 1.0)
    return Bounds(share, float(low), float(high))


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> Bounds | None:
    """Return the share of pairs of runs that the first wins minus the share that it loses.

    From -1 (every run of the second is higher) to 1: twice the probability of improvement, less
    one, with its interval. Arguments and ``None`` are those of :func:`probability_of_improvement`.
    """
    improvement = probability_of_improvement(first, second)
    if improvement is None:
        return None
    return Bounds(2 * improvement.value - 1, 2 * improvement.low - 1, 2 * improvement.high - 1)


def _standardised(effect: float, degrees: int, scale: float) -> Bounds:
    """An effect with the interval from noncentral t; t is ``effect / √scale``."""
    root = math.sqrt(scale)
    t, tail = abs(effect) / root, (1 - CONFIDENCE) / 2
    low, high = (_noncentrality(t, degrees, p) * root for p in (1 - tail, tail))
    return Bounds(effect, low, high) if effect >= 0 else Bounds(effect, -high, -low)


def _noncentrality(t: float, degrees: int, probability: float) -> float:
    """The noncentrality with which a value of at most ``t`` has the probability."""
    if t > _HUGE:  # the normal part of t no longer matters, only the chi-square below it does
        return t * math.sqrt(2 * gammaincinv(degrees / 2, 1 - probability) / degrees)
    from scipy.stats import nct  # scipy.stats takes a second to import

    def beyond(noncentrality: float) -> float:
        return float(nct.cdf(t, degrees, noncentrality)) - probability

    # Bounds that hold for any t from 0 on: P(T <= t) >= P(Z <= -low), and P(T <= t) is at most the
    # chance of a chi-square or of a normal value beyond its half of the probability.
    low = -ndtri(probability) - 1e-6
    widest = 2 * gammaincinv(degrees / 2, 1 - probability / 2) / degrees
    high = t * math.sqrt(widest) - ndtri(probability / 2) + 1e-6
    return float(brentq(beyond, low, high, xtol=1e-10))


def _spread(variances: float, values: Sequence[float]) -> float:
    """The standard deviation, 0 where it is nothing but rounding."""
    spread = math.sqrt(variances)
    return 0.0 if spread <= 1e-9 * max(map(abs, values)) else spread
