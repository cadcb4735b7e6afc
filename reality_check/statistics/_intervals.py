"""Means with their t-intervals, and intervals that need not be symmetric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr, ndtri, stdtr, stdtrit

#: Confidence of every interval of the report; differences are tested at one minus this.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Centred:
    """A number with the half-width of the interval about it.

    Attributes:
        mean: the number.
        half_width: of the interval; ``None`` where none can be given.
    """

    mean: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        """Lower end of the interval, ``None`` without one."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval, ``None`` without one."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Interval(Centred):
    """A mean with the half-width of its interval, in the unit of the values.

    Attributes:
        mean: arithmetic mean (NaN when a value is not finite).
        half_width: of the interval; ``None`` where none can be given (``n`` of 1).
        n: number of values.
    """

    n: int


@dataclass(frozen=True)
class Bounds:
    """An estimate with an interval that need not be symmetric, in the unit of the values."""

    value: float
    low: float
    high: float


def t_interval(values: Sequence[float]) -> Interval:
    """Return the mean and its t-interval, ``mean ± t((1 + CONFIDENCE) / 2, n - 1) s / √n``.

    Args:
        values: one number per reproduction, at least one; ``s`` is their standard deviation with
            ``n - 1`` in the denominator.
    """
    n = len(values)
    if n == 0:
        raise ValueError("values is empty; a mean needs at least one value.")
    if not all(math.isfinite(value) for value in values):
        return Interval(math.nan, None, n)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, n)
    half_width = t_quantile(n - 1) * math.sqrt(variance(values, mean) / n)
    return Interval(mean, half_width, n)


def variance(values: Sequence[float], mean: float) -> float:
    """The sample variance, with n - 1 in the denominator, around a mean that is known."""
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """The quantile that a two-sided interval reaches to; degrees may be infinite (normal)."""
    p = (1 + confidence) / 2
    return float(ndtri(p) if math.isinf(degrees) else stdtrit(degrees, p))


def two_sided_p(t: float, degrees: float) -> float:
    """The p-value of t on both sides; degrees may be infinite (normal)."""
    return 2 * float(ndtr(-abs(t)) if math.isinf(degrees) else stdtr(degrees, -abs(t)))
