"""Differences between two methods, over their reproductions, and between all pairs of methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reality_check.statistics._intervals import (
    CONFIDENCE,
    Bounds,
    Centred,
    t_quantile,
    two_sided_p,
)

#: No p-value from fewer units on either side: two values say nothing about their own spread.
MIN_TESTED = 3


@dataclass(frozen=True)
class Difference(Centred):
    """The mean of one sample minus the mean of another, with its t-interval and test.

    Attributes:
        mean: difference of the means, in the unit of the values.
        half_width: of the interval; ``None`` where a sample has fewer than two values.
        p_value: two-sided, for "the means are equal"; ``None`` where ``half_width`` is, and
            where a sample has fewer than :data:`MIN_TESTED` values.
        n: sizes of the two samples, in units: reproductions, searches or trials.
        error: standard error of the difference, where there is an interval.
        degrees: degrees of freedom of its t, where there is an interval.
    """

    p_value: float | None
    n: tuple[int, int]
    error: float | None = None
    degrees: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Two methods compared on one metric in one category.

    Attributes:
        better: name of the method with the higher mean.
        other: name of the other one.
        difference: ``better`` minus ``other``.
        adjusted_p: the p-value after Holm's correction for ``pairs`` tests, or ``None``.
        pairs: how many pairs were tested together.
        improvement: the probability that a run of ``better`` is above one of ``other``, as the
            size of the effect; ``None`` where it was not estimated.
    """

    better: str
    other: str
    difference: Difference
    adjusted_p: float | None
    pairs: int
    improvement: Bounds | None = None

    @property
    def distinct(self) -> bool:
        """Whether the difference stands after the correction."""
        return self.adjusted_p is not None and self.adjusted_p < 1 - CONFIDENCE


def satterthwaite(u: float, first: float, v: float, second: float) -> float:
    """Return the degrees of freedom of a sum of two squared errors (Welch 1947)."""
    if u + v == 0:
        return first + second
    inverse = (u / (u + v)) ** 2 / first + (v / (u + v)) ** 2 / second
    return math.inf if inverse == 0 else 1 / inverse


def t_difference(mean: float, error: float, degrees: float, n: tuple[int, int]) -> Difference:
    """Return the difference with its interval and, from enough units, its test.

    No spread at all makes any difference certain, and no difference none.
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
    running = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def holm_of_known(p_values: Sequence[float | None]) -> list[float | None]:
    """Return :func:`holm` of those p-values that there are; the others stay ``None``."""
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]
