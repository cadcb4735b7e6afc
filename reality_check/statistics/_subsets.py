"""One random search taken for all the smaller ones that are in it.

Of T independent trials, every subset of N is a search of N trials. Its winner is the one with the
highest validation score; what counts is the test score of the winner's retraining. The mean over
all subsets has a closed form (:func:`subset_weights`), so that nothing is drawn. This is the
expected validation performance of Dodge et al. (2019) and Tang et al. (2020) carried over to the
test score of the retrained winner, with an error. ``docs/inference.md`` has proof and limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reality_check.statistics._intervals import t_quantile
from reality_check.statistics._searches import Estimate, Shares, planned_error

Array = NDArray[np.float64]

#: A budget is estimated only where the trials that were not retrained win at most this share of
#: its subsets: these are left out, which shifts the estimate by this share of how much lower they
#: would have scored. On the bank of ``docs/calibration.md`` 95 % intervals cover 95 % with 1.8 %
#: left out, and 88 to 94 % with 2.5 %.
MAX_LEFT_OUT = 0.02


def subset_weights(trials: int, budget: int) -> Array:
    """Return how likely each trial is to win a random subset: ``C(i - 1, N - 1) / C(T, N)``.

    Args:
        trials: T, how many were made.
        budget: N, the size of the subset, from 1 to T.

    Returns:
        Shape (T,), for the i-th trial by validation, the worst first; the sum is 1.

    Raises:
        ValueError: the budget is outside of that range.
    """
    if not 1 <= budget <= trials:
        raise ValueError(
            f"budget={budget}, but there are {trials} trials; a budget is 1 to {trials} of them, "
            "and at most half of them for a useful interval."
        )
    i = np.arange(trials, 1, -1)
    ratios = np.maximum(i - budget, 0) / (i - 1)
    return np.asarray(np.cumprod([budget / trials, *ratios])[::-1], dtype=np.float64)


def all_subsets(validation: Sequence[float], tests: Mapping[int, float], budget: int) -> Estimate:
    """Return the mean test score of the winners of all subsets of one search's trials.

    The error is that of the jackknife which deletes one trial at a time: it contains the luck of
    the draws and of the retrainings. Right for independent draws only.

    Args:
        validation: of all T trials; a diverged one counts with 0. Trials with equal values win
            equally often: the mean over the orders in which they could be ranked.
        tests: by position in ``validation``, the test score of a retraining with a fresh seed (or
            the mean of several) of the best trials; 0 where it diverged.
        budget: N, the number of trials of a subset.

    Returns:
        No interval where ``budget`` is T, or one trial alone was retrained.

    Raises:
        ValueError: the budget is not between 1 and T, no trial was retrained, or one that is not
            there was.
    """
    values, scores = _arrays(validation, tests)
    estimate, deleted = subset_estimates(values, scores, budget)
    mean, error = float(estimate), float(jackknife_error(deleted))
    if not all(map(math.isfinite, tests.values())):  # NaN is read as not retrained
        mean = error = math.nan
    if not math.isfinite(error):
        return Estimate(mean, None, None, None, len(validation))
    if np.ptp(deleted) <= 1e-12 * np.abs(scores[~np.isnan(scores)]).max():  # rounding alone
        error = 0.0
    degrees = subset_degrees(len(validation), budget)
    half_width = t_quantile(degrees) * error
    return Estimate(mean, half_width, error, degrees, len(validation))


def budget_curve(
    validation: Sequence[float], tests: Mapping[int, float], budgets: Sequence[int] | None = None
) -> dict[int, Estimate]:
    """Return :func:`all_subsets` by budget: test score against number of trials.

    Args:
        validation: of all T trials.
        tests: of the retrained ones, by position in ``validation``.
        budgets: by default from 1 to T / 2; beyond, a handful of trials decides.

    Returns:
        In ascending order of budgets, without those of which :func:`left_out` is above
        :data:`MAX_LEFT_OUT`. These are the small ones: a few trials are often won by a middling
        one. With 50 trials and the best 15 retrained the curve goes from 10 to 25.
    """
    wanted = range(1, len(validation) // 2 + 1) if budgets is None else sorted(set(budgets))
    return {
        budget: all_subsets(validation, tests, budget)
        for budget in wanted
        if left_out(validation, tests, budget) <= MAX_LEFT_OUT
    }


def left_out(validation: Sequence[float], tests: Mapping[int, float], budget: int) -> float:
    """Return the share of all subsets whose winner was not retrained."""
    values, scores = _arrays(validation, tests)
    return float(_chances(values, budget)[np.isnan(scores)].sum())


def subset_shares(
    validation: Sequence[float], tests: Mapping[int, float], budget: int
) -> dict[int, float]:
    """Return the share of each retrained trial in :func:`all_subsets`; together they are 1.

    The estimate is the sum of their test scores times these; so it is for the score of one query.
    """
    values, scores = _arrays(validation, tests)
    chances = _chances(values, budget)
    total = chances[~np.isnan(scores)].sum()
    return {trial: float(chances[trial] / total) for trial in tests}


def planned_subsets_error(shares: Shares, trials: int, budget: int) -> float:
    """Return the standard error that :func:`all_subsets` is expected to have, to about 15 %.

    That of a mean over as many winners as the weights amount to (``1 / Σ w²``), each trained once;
    ``docs/calibration.md`` compares it with campaigns.

    Args:
        shares: variances of an earlier experiment, or of a bank of trials.
        trials: T.
        budget: N.

    Raises:
        ValueError: a variance is not known.
    """
    squares = float((subset_weights(trials, budget) ** 2).sum())
    return planned_error(shares, 1, 1) * math.sqrt(squares)


# -- the estimator on arrays, for one search or for thousands at once -----------------------------


def subset_estimates(validation: Array, tests: Array, budget: int) -> tuple[Array, Array]:
    """Return the estimate over all subsets, and what it is without each trial.

    Args:
        validation: shape (..., T).
        tests: shape (..., T), NaN where a trial was not retrained.
        budget: N.

    Returns:
        Shapes (...) and (..., T), the latter by position in ``validation``; NaN where no retrained
        trial is left, or fewer than N trials are.
    """
    trials = validation.shape[-1]
    order = np.argsort(validation, axis=-1, kind="stable")
    ranked = np.take_along_axis(validation, order, -1)
    scores = np.take_along_axis(tests, order, -1)
    known = ~np.isnan(scores)
    ties = _Ties(ranked)
    whole = subset_weights(trials, budget)
    smaller = subset_weights(trials - 1, budget) if budget < trials else np.full(trials - 1, np.nan)
    parts = [ties.won(np.where(known, s, 0.0), whole, smaller) for s in (scores, 1.0)]
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate, ranked_deleted = (a / b for a, b in zip(*parts, strict=True))
    deleted = np.empty_like(ranked_deleted)
    np.put_along_axis(deleted, order, ranked_deleted, -1)
    return estimate, deleted


def jackknife_error(deleted: Array) -> Array:
    """Return the standard error from the estimates without each of T units, shape (..., T)."""
    trials = deleted.shape[-1]
    return np.asarray(np.std(deleted, axis=-1) * math.sqrt(trials - 1))


def subset_degrees(trials: int, budget: int) -> float:
    """Return the degrees of freedom of the interval of :func:`all_subsets`.

    The weights are worth ``1 / Σ w²`` trials, and one less is the degrees of freedom, as for a mean
    of that many values (``budget`` 1 is exactly that: T - 1). Measured on a bank of real trials
    (``benchmarks/calibration.py --quantiles``; ``docs/calibration.md``): with 50 trials and N = 10
    intervals by normal quantiles cover 91 %, by twice these degrees 93 %, and by these 95 %.
    """
    return 1 / float((subset_weights(trials, budget) ** 2).sum()) - 1


class _Ties:
    """Trials sorted by validation, in groups of equal values.

    Within a group the mean over all orders gives every trial the mean of the group's weights.
    """

    def __init__(self, ranked: Array) -> None:
        trials = ranked.shape[-1]
        positions = np.broadcast_to(np.arange(trials), ranked.shape)
        differs = ranked[..., 1:] != ranked[..., :-1]
        edge = np.ones((*ranked.shape[:-1], 1), dtype=bool)
        starts = np.where(np.concatenate([edge, differs], -1), positions, 0)
        ends = np.where(np.concatenate([differs, edge], -1), positions + 1, trials)
        self.start = np.maximum.accumulate(starts, axis=-1)
        self.end = np.flip(np.minimum.accumulate(np.flip(ends, -1), axis=-1), -1)
        self.size = self.end - self.start

    def sums(self, values: Array) -> Array:
        """Return for each position the sum of the values of its group."""
        total = _cumulated(values)
        return self._at(total, self.end) - self._at(total, self.start)

    def won(self, values: Array, whole: Array, smaller: Array) -> tuple[Array, Array]:
        """Return the sum of values times chances to win, with all trials and without each.

        Args:
            values: shape (..., T), sorted by validation.
            whole: shape (T,), weights by rank of all T trials.
            smaller: shape (T - 1,), those of T - 1.
        """
        group = self.sums(values)
        mean = group / self.size
        below = self._at(_cumulated(mean * np.append(smaller, 0.0)), self.start)
        above = _cumulated(mean * np.insert(smaller, 0, 0.0))
        above = above[..., -1:] - self._at(above, self.end)
        weights = np.append(0.0, np.cumsum(smaller))
        own = weights[np.maximum(self.end - 1, self.start)] - weights[self.start]
        rest = (group - values) / np.maximum(self.size - 1, 1)
        return (mean * whole).sum(-1), below + above + own * rest

    @staticmethod
    def _at(cumulated: Array, positions: NDArray[np.int64]) -> Array:
        shape = (*positions.shape[:-1], cumulated.shape[-1])
        return np.take_along_axis(np.broadcast_to(cumulated, shape), positions, -1)


def _cumulated(values: Array) -> Array:
    """Return the sums of the first 0, 1, ... values along the last axis."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], -1)


def _chances(validation: Array, budget: int) -> Array:
    """Return how likely each trial is to win a subset, by position in ``validation``."""
    order = np.argsort(validation, kind="stable")
    ties = _Ties(validation[order])
    chances = np.empty(len(order))
    chances[order] = ties.sums(subset_weights(len(order), budget)) / ties.size
    return chances


def _arrays(validation: Sequence[float], tests: Mapping[int, float]) -> tuple[Array, Array]:
    values = np.asarray(validation, dtype=float)
    if not np.isfinite(values).all():
        trial = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"validation of trial {trial} is {values[trial]}; a diverged trial counts with 0."
        )
    if not tests:
        raise ValueError("tests is empty; the best trials need a test score of a retraining each.")
    unknown = [trial for trial in tests if not 0 <= trial < len(values)]
    if unknown:
        raise ValueError(
            f"tests has a score of trial {unknown[0]}, but validation has {len(values)} trials; "
            f"trials are numbered 0 to {len(values) - 1}."
        )
    scores = np.full(len(values), np.nan)
    scores[list(tests)] = list(tests.values())
    return values, scores
