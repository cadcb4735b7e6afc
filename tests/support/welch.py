"""Differences of plain values, which the statistics have for means of searches."""

from __future__ import annotations

from collections.abc import Sequence

from reality_check.statistics import (
    Difference,
    Estimate,
    estimate_difference,
    over_searches,
)


def estimate(values: Sequence[float]) -> Estimate:
    """That of searches with one value each."""
    return over_searches([[value] for value in values])


def welch_difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The first mean minus the second, with Welch's interval and test."""
    return estimate_difference(estimate(first), estimate(second))
