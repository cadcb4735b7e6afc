"""Bootstrap over test classes: classes are resampled with all their queries.

Scores of queries of one class are correlated, so a bootstrap that draws single queries gives
intervals that are too narrow. Drawing whole classes (the cluster bootstrap: Davison and Hinkley
1997, "Bootstrap Methods and their Application", section 3.8) keeps them together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from reality_check.statistics._intervals import CONFIDENCE, Bounds

Array = NDArray[np.float64]

#: Number of bootstrap draws. With 5,000, the ends of a 95 % interval are off by about 2 % of its
#: half-width.
DRAWS = 5000

#: Maximum number of drawn class indices in memory at once.
_MAX_DRAWN_INDICES = 2**20


def class_totals(values: Array, labels: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """Return the sum of the values and the number of queries of each class.

    Args:
        values: shape (K, Q): K sets of scores of the same queries.
        labels: the class of each query, shape (Q,).

    Returns:
        The sums, shape (K, C), and the counts, shape (C,), of the C classes that have queries.
    """
    _, class_indices, counts = np.unique(labels, return_inverse=True, return_counts=True)
    totals = np.array([np.bincount(class_indices, row, len(counts)) for row in values], np.float64)
    return totals, counts.astype(np.int64)


def resampled_means(
    totals: Array, counts: NDArray[np.int64], draws: int = DRAWS, seed: int = 0
) -> Array:
    """Return means over queries of test classes that are drawn with replacement.

    Each draw takes as many classes as there are. All K sets of scores see the same draws, so that
    the differences of their means are paired.

    Args:
        totals: the sum of each class, shape (K, C).
        counts: the number of queries of each class, shape (C,). If each query is a class of its
            own, this is the plain bootstrap over queries.
        draws: number of draws.
        seed: the same seed gives the same draws.

    Returns:
        The means, shape (draws, K). A class drawn twice counts twice, in its sum and its queries.
    """
    generator = np.random.default_rng(seed)
    num_classes = len(counts)
    step = max(1, _MAX_DRAWN_INDICES // num_classes)
    means = []
    for start in range(0, draws, step):
        size = min(step, draws - start)
        drawn = generator.integers(num_classes, size=(size, num_classes))
        # Each draw gets its own range of indices, so that one call counts the classes of all draws.
        drawn += np.arange(size)[:, None] * num_classes
        weights = np.bincount(drawn.ravel(), minlength=size * num_classes).reshape(
            size, num_classes
        )
        means.append((weights @ totals.T) / (weights @ counts)[:, None])
    return np.concatenate(means)


def with_noise(draws: Array, error: float, degrees: float) -> Array:
    """Return the draws with random errors of the estimate added, so that they vary by both causes.

    The estimate is known up to ``error`` times a t-distributed deviation (JCGM 101:2008,
    "Propagation of distributions using a Monte Carlo method", 6.4.9), which is added to each draw.

    Args:
        draws: draws of :func:`resampled_means`, shape (B,).
        error: standard error of the estimate.
        degrees: degrees of freedom of the t distribution; infinite for a normal one.
    """
    generator = np.random.default_rng(1)  # another seed than that of the draws
    if math.isinf(degrees):
        return draws + error * generator.standard_normal(len(draws))
    return draws + error * generator.standard_t(degrees, size=len(draws))


def percentile_interval(draws: Array, value: float, count: int) -> Bounds:
    """Return the expanded percentile interval of bootstrap draws, which also suits few classes.

    The percentiles are moved outwards so that the interval of a mean of normal values would be the
    t-interval (Hesterberg 2015, "What teachers should know about the bootstrap"): each tail is
    ``Φ(-t √(n / (n - 1)))`` instead of 2.5 %.

    Args:
        draws: the bootstrap draws, shape (B,).
        value: the statistic of the data themselves.
        count: number of classes (or queries) to draw from, at least two.
    """
    t = stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    tail = float(ndtr(-t * math.sqrt(count / (count - 1))))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Bounds(value, float(low), float(high))


def design_effect(totals: Array, counts: NDArray[np.int64], squares: Array) -> float:
    """Return the variance of the mean over classes, divided by its variance over queries.

    The latter assumes independent queries (Kish 1965, "Survey Sampling"). A design effect of 9
    makes intervals three times as wide as independent queries would.

    Args:
        totals: the sum of each class, shape (C,).
        counts: the number of queries of each class, shape (C,).
        squares: the sum of squares of each class, shape (C,).

    Returns:
        The design effect; NaN where the values do not vary or there is only one class.
    """
    num_queries, num_classes = counts.sum(), len(counts)
    mean = totals.sum() / num_queries
    variance_by_query = (squares.sum() / num_queries - mean**2) / (num_queries - 1)
    residuals = totals - mean * counts
    if num_classes < 2 or variance_by_query <= 0:
        return math.nan
    variance_by_class = num_classes / (num_classes - 1) * (residuals**2).sum() / num_queries**2
    return float(variance_by_class / variance_by_query)
