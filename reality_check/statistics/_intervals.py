"""Means with their t-intervals, and intervals that need not be symmetric about the estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

#: Confidence of all intervals of the report; differences are tested at the level 1 - CONFIDENCE.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Centred:
    """A number with the half-width of its symmetric interval.

    Attributes:
        mean: the number.
        half_width: half-width of the interval; ``None`` where there is no interval.
    """

    mean: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        """Lower end of the interval; ``None`` without an interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval; ``None`` without an interval."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Estimate(Centred):
    """A mean, or an estimate of the score of a tuned loss.

    Attributes:
        mean: the estimate, in the unit of the values; NaN if a value is not finite.
        half_width: half-width of its interval; ``None`` without one, for example if ``n`` is 1.
        error: its standard error; ``None`` without an interval.
        degrees: degrees of freedom of its t distribution; ``None`` for a single value.
        n: number of units: values, searches, or trials of the one random search.
        deleted: the estimate without each of the units in turn; empty without an interval.
    """

    error: float | None
    degrees: float | None
    n: int
    deleted: Sequence[float] = field(default=(), repr=False)

    @property
    def effective_n(self) -> float:
        """Number of equally weighted units that the estimate amounts to."""
        return self.n if self.degrees is None else self.degrees + 1

    @property
    def is_weighted(self) -> bool:
        """Whether the units weigh unequally, as the trials of all subsets do."""
        return round(self.effective_n, 6) < self.n


@dataclass(frozen=True)
class Bounds:
    """An estimate with an interval that need not be symmetric, in the unit of the values."""

    value: float
    low: float
    high: float


def t_interval(values: Sequence[float]) -> Estimate:
    """Return the mean with its t-interval, ``mean ± t((1 + CONFIDENCE) / 2, n - 1) s / √n``.

    Args:
        values: one number per reproduction, at least one. ``s`` is their standard deviation, with
            ``n - 1`` in the denominator.
    """
    n = len(values)
    if n == 0:
        raise ValueError("values is empty; a mean needs at least one value.")
    finite = all(map(math.isfinite, values))
    mean = math.fsum(values) / n if finite else math.nan
    if n == 1 or not finite:
        return Estimate(mean, None, None, None, n)
    error = math.sqrt(variance(values, mean) / n)
    deleted = tuple((n * mean - value) / (n - 1) for value in values)
    return Estimate(mean, t_quantile(n - 1) * error, error, n - 1, n, deleted)


def jackknife_error(deleted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error from the estimates without each of n units, shape (..., n)."""
    return np.asarray(np.std(deleted, axis=-1) * math.sqrt(deleted.shape[-1] - 1))


def variance(values: Sequence[float], mean: float) -> float:
    """Return the sample variance around a known sample mean, with n - 1 in the denominator."""
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Return the t quantile of a two-sided interval; infinite degrees give the normal one."""
    p = (1 + confidence) / 2
    return float(ndtri(p) if math.isinf(degrees) else stdtrit(degrees, p))


def two_sided_p(t: float, degrees: float) -> float:
    """Return the two-sided p-value of t; infinite degrees give the normal one."""
    return 2 * float(ndtr(-abs(t)) if math.isinf(degrees) else stdtr(degrees, -abs(t)))
