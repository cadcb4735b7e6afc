"""Differences between two methods, their tests, and Holm's correction for several tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr

from reality_check.statistics._intervals import (
    CONFIDENCE,
    Bounds,
    Centred,
    t_quantile,
    two_sided_p,
)

#: Corrections with simultaneous intervals: for every pair of methods, or for one with each other.
Simultaneous = Literal["Tukey", "Dunnett"]
#: Fewest units on each side for a p-value, since two values hardly show their own spread.
MIN_TESTED = 3


@dataclass(frozen=True)
class Difference(Centred):
    """The mean of one sample minus the mean of another, with its t-interval and test.

    Attributes:
        mean: difference of the means, in the unit of the values.
        half_width: half-width of the interval; ``None`` if a sample has fewer than two values.
        p_value: two-sided p-value for "the means are equal"; ``None`` without an interval, and if
            a sample has fewer than :data:`MIN_TESTED` values.
        n: sizes of the two samples, in units: reproductions, searches or trials.
        error: standard error of the difference; ``None`` without an interval.
        degrees: degrees of freedom of its t distribution; ``None`` without an interval.
        effective_n: the effective numbers of units (:attr:`Estimate.effective_n`) of two estimates
            with intervals; else ``None``.
    """

    p_value: float | None
    n: tuple[int, int]
    error: float | None = None
    degrees: float | None = None
    effective_n: tuple[float, float] | None = None


@dataclass(frozen=True)
class Comparison:
    """Two methods compared on one metric in one category.

    Attributes:
        better: name of the method with the higher mean.
        other: name of the other one.
        difference: mean of ``better`` minus mean of ``other``.
        adjusted_p: p-value after Holm's correction for ``pairs`` tests; ``None`` if not tested.
        pairs: number of pairs that were tested together.
        improvement: effect size, the probability that a run of ``better`` is above one of
            ``other``; ``None`` if it was not estimated.
    """

    better: str
    other: str
    difference: Difference
    adjusted_p: float | None
    pairs: int = 0
    improvement: Bounds | None = None

    @property
    def distinct(self) -> bool:
        """Whether the difference is significant after the correction."""
        return self.adjusted_p is not None and self.adjusted_p < 1 - CONFIDENCE


def satterthwaite(u: float, first: float, v: float, second: float) -> float:
    """Return the degrees of freedom of the sum of two squared errors ``u`` and ``v`` (Welch 1947).

    ``first`` and ``second`` are the degrees of freedom of ``u`` and of ``v``.
    """
    if u + v == 0:
        return first + second
    inverse = (u / (u + v)) ** 2 / first + (v / (u + v)) ** 2 / second
    return math.inf if inverse == 0 else 1 / inverse


def t_difference(mean: float, error: float, degrees: float, n: tuple[int, int]) -> Difference:
    """Return the difference with its interval and, if both sides have enough units, its test.

    An error of 0 gives a p-value of 0, or of 1 where the difference is 0 too.
    """
    if min(n) < MIN_TESTED:
        p_value = None
    elif error == 0:
        p_value = float(mean == 0)
    else:
        p_value = two_sided_p(mean / error, degrees)
    return Difference(mean, t_quantile(degrees) * error, p_value, n, error, degrees)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's step-down correction, in the order given.

    Source: Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def holm_of_known(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values after :func:`holm`, in which values that are ``None`` do not count."""
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def simultaneous_p(t: float, degrees: float, methods: int, test: Simultaneous) -> float:
    """Return the p-value of one comparison, corrected for all comparisons of methods.

    It is the probability that the largest statistic of all comparisons exceeds ``t`` if all methods
    are alike and their means have the same error; means with different errors are treated as if
    they had the same one, after Kramer.

    Args:
        t: difference of two means divided by its standard error; the sign does not matter.
        degrees: degrees of freedom of the error; infinite ones count as a million.
        methods: number of methods, at least two.
        test: ``"Tukey"`` covers every pair, and so the highest mean with each other one;
            ``"Dunnett"`` covers one method, chosen before its mean was known, with each other one.

    Sources: Tukey (1953), "The problem of multiple comparisons"; Kramer (1956), "Extension of
    multiple range tests to group means with unequal numbers of replications"; Dunnett (1955), "A
    multiple comparison procedure for comparing several treatments with a control".
    """
    z = np.linspace(-8, 8, 61)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    # By row, the estimated error at the quantiles of z; ``weights`` average over rows and columns.
    half = min(degrees, 1e6) / 2
    reach = math.sqrt(2) * abs(t) * np.sqrt(gammaincinv(half, ndtr(z)) / half)[:, None]
    # z is the highest of the means, which any of the methods may have, or the mean of the one
    top, factor = (z, methods) if test == "Tukey" else (z + reach, 1)
    within = factor * (ndtr(top) - ndtr(z - reach)) ** (methods - 1)
    return abs(1 - float(weights @ within @ weights))  # 0, or rounding, if t is large


@cache
def simultaneous_quantile(degrees: float, methods: int, test: Simultaneous) -> float:
    """Return the ``t`` at which :func:`simultaneous_p` is ``1 - CONFIDENCE``.

    Differences plus and minus this many standard errors are simultaneous intervals: in 95 % of
    families all of them hold the true differences.
    """
    level = 1 - CONFIDENCE
    above = 1.1 * t_quantile(degrees, 1 - level / math.comb(methods, 2))  # as Bonferroni's is
    return float(brentq(lambda t: simultaneous_p(t, degrees, methods, test) - level, 0.0, above))
