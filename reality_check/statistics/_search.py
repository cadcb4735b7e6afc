"""Expected best score of a search, by number of trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from reality_check.statistics._intervals import CONFIDENCE
from reality_check.statistics._subsets import subset_weights

Array = NDArray[np.float64]

#: Number of simulated searches that calibrate the level of a band.
_DRAWS = 2000


def expected_best(values: Sequence[float]) -> Array:
    """Return the expected best score of n trials, for n from 1 to N.

    The estimate draws n of the N values without replacement: it is the unbiased estimate of Tang et
    al. (2020), "Showing your work doesn't always work", with the weights of :func:`subset_weights`.
    Trials are assumed to be independent draws from one distribution. A sampler that learns puts
    its better trials last, so the curve is that of the same trials in random order.

    Args:
        values: scores of the N trials, at least one; a diverged trial counts with its score.

    Returns:
        The expected best score for each n, shape (N,).

    Raises:
        ValueError: ``values`` is empty.
    """
    if not len(values):
        raise ValueError("values is empty; the best of a search needs at least one trial.")
    ranked = np.sort(np.asarray(values, dtype=float))
    trials = len(ranked)
    return np.array([subset_weights(trials, n) @ ranked for n in range(1, trials + 1)])


def expected_best_band(values: Sequence[float]) -> tuple[Array, Array]:
    """Return bounds on the expected best score of n independent trials, for n from 1 to N.

    The bounds hold for all n at once, and for any distribution of scores between 0 and 1. They
    follow from the equal-tailed band for the distribution function F of Lourie, Cho and He (2024),
    "Show your work with confidence", since the expected best is ``1 - ∫ F(y)^n dy``. The band keeps
    each order statistic within the same quantiles of its Beta distribution, chosen so wide that
    this is true of all order statistics at once.

    Args:
        values: scores of the N trials.

    Returns:
        Lower and upper bounds, each of shape (N,).
    """
    trials = len(values)
    rank = np.arange(1, trials + 1)
    uniform = np.sort(np.random.default_rng(0).random((_DRAWS, trials)), axis=1)
    # Each order statistic of uniform values has a Beta distribution. In 95 % of the simulated
    # searches, none of them has a two-sided tail below ``level``.
    cumulative = betainc(rank, trials + 1 - rank, uniform)
    level = np.quantile(2 * np.minimum(cumulative, 1 - cumulative).min(axis=1), 1 - CONFIDENCE)
    least, most = (betaincinv(rank, trials + 1 - rank, tail) for tail in (level / 2, 1 - level / 2))
    steps = np.diff(np.concatenate([[0.0], np.sort(np.asarray(values, dtype=float)), [1.0]]))
    # Upper bounds on F give the lower bounds on the expected best, and the reverse.
    low, high = (
        np.asarray(1 - (np.concatenate(distribution) ** rank[:, None]) @ steps, dtype=np.float64)
        for distribution in ((most, [1.0]), ([0.0], least))
    )
    return low, high
