"""Effect size of the difference between two methods."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.optimize import brentq
from scipy.special import ndtri

from reality_check.statistics._intervals import CONFIDENCE, Bounds


def probability_of_improvement(
    first: Sequence[float],
    second: Sequence[float],
    weights: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Bounds | None:
    """Return the probability that a run of the first method is above one of the second.

    The estimate is the share of all pairs of runs in which the first is higher; a tie counts as
    half (Mann and Whitney's U over n₁n₂). The interval is Newcombe's (2006, "Confidence intervals
    for an effect size measure based on the Mann-Whitney statistic", part 2, method 5): its ends are
    the probabilities that are one normal quantile from the estimate, by the variance of Hanley and
    McNeil with both sizes replaced by their mean. Unlike a bootstrap interval, this one has a width
    even if the samples do not overlap.

    Args:
        first: values of one method, one per reproduction.
        second: values of the other method; the sizes may differ.
        weights: weights of the values of the first and of the second method; each side sums to 1.
            Sample sizes are then the effective ones, ``1 / Σw²`` (Kish 1965). ``None`` weighs all
            values equally.

    Returns:
        Estimate and interval, or ``None`` if a sample is empty or a value is not finite.
    """
    if not len(first) * len(second) or not all(map(math.isfinite, (*first, *second))):
        return None
    if weights is None:
        m, n = float(len(first)), float(len(second))
        share = sum((a > b) + (a == b) / 2 for a in first for b in second) / (m * n)
    else:
        m, n = (1 / math.fsum(weight**2 for weight in side) for side in weights)
        share = math.fsum(
            first_weight * second_weight * ((a > b) + (a == b) / 2)
            for a, first_weight in zip(first, weights[0], strict=True)
            for b, second_weight in zip(second, weights[1], strict=True)
        )
    factor, mean_size = ndtri((1 + CONFIDENCE) / 2) ** 2 / (m * n), (m + n) / 2

    def excess(p: float) -> float:
        """Return (share - p)² minus z² times the variance for ``p``, which is 0 at the ends."""
        spread = 1 + (mean_size - 1) * ((1 - p) / (2 - p) + p / (1 + p))
        return float((share - p) ** 2 - factor * p * (1 - p) * spread)

    # If all or no pairs are won, 1 or 0 is itself a root; the end of the interval is the other one.
    low = 0.0 if share <= 0 else brentq(excess, 0.0, min(share, 1 - 1e-12))
    high = 1.0 if share >= 1 else brentq(excess, max(share, 1e-12), 1.0)
    return Bounds(share, float(low), float(high))
