"""Means with intervals, differences with intervals, and the correction for testing many pairs.

Every number here describes the spread over reproductions: retrainings of one winner with fresh
seeds. It says nothing about other class splits or about the luck of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

#: Confidence of every interval of the report; differences are tested at one minus this.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with the half-width of its interval, in the unit of the values.

    Attributes:
        mean: arithmetic mean (NaN when a value is not finite).
        half_width: of the interval; ``None`` where none can be given (``n`` of 1).
        n: number of values.
    """

    mean: float
    half_width: float | None
    n: int

    @property
    def low(self) -> float | None:
        """Lower end of the interval, ``None`` without one."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval, ``None`` without one."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Difference:
    """The mean of one sample minus the mean of another, with Welch's t-interval and test.

    Attributes:
        mean: difference of the means, in the unit of the values.
        half_width: of the interval; ``None`` where a sample has fewer than two values.
        p_value: two-sided, for "the means are equal"; ``None`` where ``half_width`` is.
        n: sizes of the two samples.
    """

    mean: float
    half_width: float | None
    p_value: float | None
    n: tuple[int, int]


@dataclass(frozen=True)
class Comparison:
    """Two methods compared on one metric in one category.

    Attributes:
        better: name of the method with the higher mean.
        other: name of the other one.
        difference: ``better`` minus ``other``.
        adjusted_p: the p-value after Holm's correction for ``pairs`` tests, or ``None``.
        pairs: how many pairs were tested together.
    """

    better: str
    other: str
    difference: Difference
    adjusted_p: float | None
    pairs: int

    @property
    def distinct(self) -> bool:
        """Whether the difference stands after the correction."""
        return self.adjusted_p is not None and self.adjusted_p < 1 - CONFIDENCE


def t_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean and its t-interval, ``mean ± t((1 + confidence) / 2, n - 1) s / √n``.

    Args:
        values: one number per reproduction, at least one; ``s`` is their standard deviation with
            ``n - 1`` in the denominator.
        confidence: for example 0.95.
    """
    n = len(values)
    if n == 0:
        raise ValueError("values is empty; a mean needs at least one value.")
    if not all(math.isfinite(value) for value in values):
        return Interval(math.nan, None, n)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, n)
    t = float(stdtrit(n - 1, (1 + confidence) / 2))
    return Interval(mean, t * math.sqrt(_variance(values, mean) / n), n)


def welch_difference(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> Difference:
    """Return ``mean(first) - mean(second)`` with Welch's t-interval (variances may differ).

    Args:
        first: values of one method, one per reproduction.
        second: values of the other method; the sizes may differ.
        confidence: for example 0.95.
    """
    a, b = t_interval(first), t_interval(second)
    n, mean = (a.n, b.n), a.mean - b.mean
    if min(n) < 2 or not math.isfinite(mean):
        return Difference(mean, None, None, n)
    u, v = _variance(first, a.mean) / a.n, _variance(second, b.mean) / b.n
    if u + v == 0:  # no spread at all: any difference is certain, no difference is none
        return Difference(mean, 0.0, float(mean == 0), n)
    degrees = (u + v) ** 2 / (u**2 / (a.n - 1) + v**2 / (b.n - 1))
    error = math.sqrt(u + v)
    half_width = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    return Difference(mean, half_width, 2 * float(stdtr(degrees, -abs(mean) / error)), n)


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


def compare_pairs(samples: Mapping[str, Sequence[float]]) -> tuple[Comparison, ...]:
    """Compare every pair of methods; the best two come first, pairs follow the ranking.

    Args:
        samples: the values of each method, at least one each. Methods with a value that is not
            finite are left out: they have no mean to rank.
    """
    means = {name: t_interval(values).mean for name, values in samples.items()}
    ranked = sorted((m for m in means if math.isfinite(means[m])), key=lambda m: -means[m])
    pairs = [(a, b) for i, a in enumerate(ranked) for b in ranked[i + 1 :]]
    differences = [welch_difference(samples[a], samples[b]) for a, b in pairs]
    tested = [d.p_value for d in differences if d.p_value is not None]
    adjusted = iter(holm(tested))
    return tuple(
        Comparison(a, b, d, None if d.p_value is None else next(adjusted), len(tested))
        for (a, b), d in zip(pairs, differences, strict=True)
    )


def _variance(values: Sequence[float], mean: float) -> float:
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
