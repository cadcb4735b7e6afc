"""Differences between two methods, over their reproductions, and between all pairs of methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from reality_check.report.statistics._intervals import CONFIDENCE, Centred, t_interval, variance


@dataclass(frozen=True)
class Difference(Centred):
    """The mean of one sample minus the mean of another, with its t-interval and test.

    Attributes:
        mean: difference of the means, in the unit of the values.
        half_width: of the interval; ``None`` where a sample has fewer than two values.
        p_value: two-sided, for "the means are equal"; ``None`` where ``half_width`` is.
        n: sizes of the two samples.
    """

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
    u, v = variance(first, a.mean) / a.n, variance(second, b.mean) / b.n
    if u + v == 0:  # no spread at all: any difference is certain, no difference is none
        return Difference(mean, 0.0, float(mean == 0), n)
    degrees = (u + v) ** 2 / (u**2 / (a.n - 1) + v**2 / (b.n - 1))
    error = math.sqrt(u + v)
    half_width = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    return Difference(mean, half_width, 2 * float(stdtr(degrees, -abs(mean) / error)), n)


def paired_difference(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> Difference:
    """Return ``mean(first - second)`` with the paired t-interval and test.

    Args:
        first: values of one method, one per common seed.
        second: values of the other method on the same seeds, in the same order.
        confidence: for example 0.95.

    Raises:
        ValueError: the numbers of values differ.
    """
    if len(first) != len(second):
        raise ValueError(
            f"first has {len(first)} values and second has {len(second)}, but a paired difference "
            "needs one of each per seed; leave out the seeds that one of them lacks."
        )
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    interval, n = t_interval(gaps, confidence), (len(gaps), len(gaps))
    if interval.half_width is None:
        return Difference(interval.mean, None, None, n)
    error = math.sqrt(variance(gaps, interval.mean) / interval.n)
    if error == 0:
        return Difference(interval.mean, 0.0, float(interval.mean == 0), n)
    p_value = 2 * float(stdtr(interval.n - 1, -abs(interval.mean) / error))
    return Difference(interval.mean, interval.half_width, p_value, n)


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
