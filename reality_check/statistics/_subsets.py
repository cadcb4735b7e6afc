"""Estimates from all smaller searches that are contained in one random search.

Every subset of N of T independent trials is a search of N trials. Its winner is the trial with the
highest validation score, and its score is the test score of the winner's retraining. The mean over
all subsets has a closed form (:func:`subset_weights`), so no subsets are drawn. This extends the
expected validation performance of Dodge et al. (2019) and Tang et al. (2020) to the test score of
the retrained winner, with a standard error. ``docs/inference.md`` has the proof and the limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reality_check.statistics._differences import MIN_TESTED
from reality_check.statistics._intervals import jackknife_error, t_quantile
from reality_check.statistics._searches import Estimate, Shares, planned_error

Array = NDArray[np.float64]

#: A budget is estimated only if trials that were not retrained win at most this share of its
#: subsets. Leaving these out shifts the estimate by their share, times the amount by which they
#: would have scored lower. On the bank of ``docs/calibration.md``, 95 % intervals cover 95 % with
#: 1.8 % left out, and 88 to 94 % with 2.5 %.
MAX_LEFT_OUT = 0.02
#: The least error of retrained trials, as a share of that which follows from the scatter of all of
#: them: on the bank `phases`, 0.7 errs in up to 7.0 %, 0.8 in 5.6 %; 0.9 finds less.
_SCATTER_SHARE = 0.8


def subset_weights(trials: int, budget: int) -> Array:
    """Return the probability of each trial to win a random subset: ``C(i - 1, N - 1) / C(T, N)``.

    Args:
        trials: T, the number of trials.
        budget: N, the size of a subset, from 1 to T.

    Returns:
        The probabilities in ascending order of validation scores, shape (T,); they sum to 1.

    Raises:
        ValueError: the budget is outside of that range.
    """
    if not 1 <= budget <= trials:
        raise ValueError(
            f"budget={budget}, but there are {trials} trials; a budget is 1 to {trials} of them, "
            "and at most half of them for a useful interval."
        )
    # The best trial wins if it is drawn. From rank i to i - 1, the probability falls by a ratio.
    rank = np.arange(trials, 1, -1)
    ratios = np.maximum(rank - budget, 0) / (rank - 1)
    return np.asarray(np.cumprod([budget / trials, *ratios])[::-1], dtype=np.float64)


def all_subsets(
    validation: Sequence[float],
    tests: Mapping[int, float],
    budget: int,
    retrained: bool = False,
) -> Estimate:
    """Return the mean test score of the winners of all subsets of one search's trials.

    The error is that of the jackknife that deletes one trial at a time, so it covers the luck of
    the draws and of the retrainings. It is valid for independent draws only. Of retrainings it is
    at least :func:`scatter_error`.

    Args:
        validation: validation scores of all T trials; a diverged trial counts as 0. Trials with
            equal scores win equally often, and those of them that were retrained stand for all.
        tests: test scores of the best trials, by position in ``validation``: each the score of a
            retraining with a fresh seed, or the mean of several; 0 if it diverged.
        budget: N, the number of trials of a subset.
        retrained: whether ``tests`` are of retrainings, not of the search's own networks.

    Returns:
        The estimate; it has no interval if only one trial was retrained, if the budget is not
        :func:`estimable <is_estimable>`, or if :func:`left_out` is above :data:`MAX_LEFT_OUT`.

    Raises:
        ValueError: the budget is not between 1 and T, no trial was retrained, or ``tests`` has a
            position that ``validation`` lacks.
    """
    values, scores = _checked_arrays(validation, tests)
    estimate, deleted = subset_estimates(values, scores, budget)
    mean, error = float(estimate), float(jackknife_error(deleted))
    if not all(map(math.isfinite, tests.values())):  # else NaN would be read as not retrained
        mean = error = math.nan
    degrees = subset_degrees(len(validation), budget)
    if (
        left_out(validation, tests, budget) > MAX_LEFT_OUT
        or not is_estimable(len(validation), budget)
        or not math.isfinite(error)
    ):
        return Estimate(mean, None, None, degrees, len(validation))
    if np.ptp(deleted) <= 1e-12 * np.abs(scores[~np.isnan(scores)]).max():  # rounding alone
        error = 0.0
    if retrained:
        error = max(error, float(scatter_error(values, scores, budget)))
    half_width = t_quantile(degrees) * error
    return Estimate(mean, half_width, error, degrees, len(validation), tuple(deleted.tolist()))


def budget_curve(
    validation: Sequence[float], tests: Mapping[int, float], retrained: bool = False
) -> dict[int, Estimate]:
    """Return the estimate of :func:`all_subsets` for each budget that has an interval.

    Args:
        validation: validation scores of all T trials.
        tests: test scores of the retrained trials, by position in ``validation``.
        retrained: that of :func:`all_subsets`.

    Returns:
        The estimates by budget, in ascending order, without budgets so small that trials which were
        not retrained often win: 10 to 24 for 50 trials of which the best 15 are retrained.
    """
    budgets = range(1, len(validation) // 2 + 1)
    estimates = {budget: all_subsets(validation, tests, budget, retrained) for budget in budgets}
    return {budget: each for budget, each in estimates.items() if each.half_width is not None}


def left_out(validation: Sequence[float], tests: Mapping[int, float], budget: int) -> float:
    """Return the share of subsets whose winner, and all trials tied with it, were not retrained."""
    return 1 - float(_retrained_weights(*_checked_arrays(validation, tests), budget).sum())


def subset_shares(
    validation: Sequence[float], tests: Mapping[int, float], budget: int
) -> dict[int, float]:
    """Return the weight of each retrained trial in :func:`all_subsets`; the weights sum to 1.

    The estimate is the weighted sum of the test scores. The same holds for the score of one query.
    """
    weights = _retrained_weights(*_checked_arrays(validation, tests), budget)
    return {trial: float(weights[trial] / weights.sum()) for trial in tests}


def planned_subsets_error(shares: Shares, trials: int, budget: int) -> float:
    """Return the expected standard error of :func:`all_subsets`, accurate to about 15 %.

    It is the error of a mean over ``1 / Σ w²`` winners (the effective number of the weights), each
    trained once; ``docs/calibration.md`` compares it with campaigns.

    Args:
        shares: variances of an earlier experiment, or of a bank of trials.
        trials: T, the number of trials.
        budget: N, the number of trials of a subset.

    Raises:
        ValueError: a variance is not known.
    """
    squares = float((subset_weights(trials, budget) ** 2).sum())
    return planned_error(shares, 1, 1) * math.sqrt(squares)


# -- the estimator on arrays, for one search or for thousands at once -----------------------------


def subset_estimates(validation: Array, tests: Array, budget: int) -> tuple[Array, Array]:
    """Return the estimate over all subsets, and the estimates with one trial deleted.

    Args:
        validation: validation scores, shape (..., T).
        tests: test scores, shape (..., T); NaN for trials that were not retrained.
        budget: N, the number of trials of a subset.

    Returns:
        The estimate, shape (...), and the estimate without each trial, shape (..., T), by position
        in ``validation``. They are NaN if no retrained trial or fewer than N trials are left.
    """
    trials = validation.shape[-1]
    order = np.argsort(validation, axis=-1, kind="stable")
    ranked = np.take_along_axis(validation, order, -1)
    scores = np.take_along_axis(tests, order, -1)
    retrained = ~np.isnan(scores)
    ties = _Ties(ranked)
    weights = subset_weights(trials, budget)
    without = subset_weights(trials - 1, budget) if budget < trials else np.full(trials - 1, np.nan)
    # Weighted sums of the retrained trials' scores, and of their weights, which normalize them.
    sums = [
        ties.expected(np.where(retrained, s, 0.0), retrained, weights, without)
        for s in (scores, 1.0)
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate, ranked_deleted = (a / b for a, b in zip(*sums, strict=True))
    deleted = np.empty_like(ranked_deleted)
    np.put_along_axis(deleted, order, ranked_deleted, -1)
    return estimate, deleted


def scatter_error(validation: Array, tests: Array, budget: int) -> Array:
    """Return 0.8 times the error of all subsets if all retrained trials scatter alike.

    The jackknife rests on the few trials that win most. Where validation hardly says which trial
    tests best, these may agree by chance while the other retrained trials show how far tests
    scatter (around their regression on validation): without this, intervals cover 89.5 % on a bank
    of ``docs/calibration.md``.

    Args:
        validation: validation scores, shape (..., T).
        tests: test scores, shape (..., T); NaN for trials that were not retrained.
        budget: N, the number of trials of a subset.

    Returns:
        Shape (...); 0 where all trials were retrained, or fewer than four.
    """
    known = ~np.isnan(tests)
    count = known.sum(-1)

    def centred(values: Array) -> Array:
        mean = np.where(known, values, 0.0).sum(-1) / np.maximum(count, 1)
        return np.where(known, values - mean[..., None], 0.0)

    x, y = centred(validation), centred(tests)
    squares = (x * x).sum(-1)
    slope = (x * y).sum(-1) / np.where(squares > 0, squares, 1.0)
    variance = ((y - slope[..., None] * x) ** 2).sum(-1) / np.maximum(count - 2, 1)
    weights = _retrained_weights(validation, tests, budget)
    share = (weights**2).sum(-1) / weights.sum(-1) ** 2
    applies = (count > 3) & (count < known.shape[-1])
    return np.where(applies, _SCATTER_SHARE * np.sqrt(variance * share), 0.0)


def subset_degrees(trials: int, budget: int) -> float:
    """Return the degrees of freedom of the interval of :func:`all_subsets`.

    The effective number of trials is ``1 / Σ w²``, and the degrees of freedom are one less, as for
    a mean of that many values (exactly T - 1 for a ``budget`` of 1). On a bank of real trials
    (``benchmarks/calibration.py --quantiles``; ``docs/calibration.md``) with T = 50 and N = 10,
    intervals cover 91 % with normal quantiles, 93 % with twice these degrees, and 95 % with these.
    """
    return 1 / float((subset_weights(trials, budget) ** 2).sum()) - 1


def is_estimable(trials: int, budget: int) -> bool:
    """Return whether at least three effective trials decide a budget, so that it has an interval.

    Args:
        trials: T, the number of trials.
        budget: N, the number of trials of a subset, from 1 to T; T / 2 is too many.
    """
    return subset_degrees(trials, budget) >= MIN_TESTED - 1


class _Ties:
    """Groups of trials with equal validation scores, after sorting by these.

    The trials of a group win equally often. Its retrained trials are as good as a random choice of
    them, so that their mean score stands for the group's. The group of a trial has ``size`` trials,
    from position ``start`` to ``end``, exclusive.
    """

    def __init__(self, ranked: Array) -> None:
        trials = ranked.shape[-1]
        positions = np.broadcast_to(np.arange(trials), ranked.shape)
        differs = ranked[..., 1:] != ranked[..., :-1]
        edge = np.ones((*ranked.shape[:-1], 1), dtype=bool)
        starts = np.where(np.concatenate([edge, differs], -1), positions, 0)
        ends = np.where(np.concatenate([differs, edge], -1), positions + 1, trials)
        # Every trial gets the nearest start at or before it, and the nearest end after it.
        self.start = np.maximum.accumulate(starts, axis=-1)
        self.end = np.flip(np.minimum.accumulate(np.flip(ends, -1), axis=-1), -1)
        self.size = self.end - self.start

    def group_sums(self, values: Array) -> Array:
        """Return for each trial the sum of the values of its group."""
        total = _cumulative_sums(values)
        return self._at(total, self.end) - self._at(total, self.start)

    def expected(
        self, values: Array, retrained: Array, weights: Array, weights_without: Array
    ) -> tuple[Array, Array]:
        """Return the sum of values times probabilities to win, with all trials and without each.

        Args:
            values: the values of the trials, sorted by validation, shape (..., T); 0 for trials
                that were not retrained.
            retrained: which trials were retrained, shape (..., T).
            weights: weights by rank of all T trials, shape (T,).
            weights_without: weights by rank of T - 1 trials, shape (T - 1,).

        Returns:
            The sum over all trials, shape (...), and the sums without each trial, shape (..., T).
        """
        # Without a trial, lower groups keep their ranks, higher groups lose one rank, and the rest
        # of the trial's group shares the ranks between them.
        group, known = self.group_sums(values), self.group_sums(retrained)
        mean = group / np.maximum(known, 1)
        below = self._at(_cumulative_sums(mean * np.append(weights_without, 0.0)), self.start)
        above = _cumulative_sums(mean * np.insert(weights_without, 0, 0.0))
        above = above[..., -1:] - self._at(above, self.end)
        sums = np.append(0.0, np.cumsum(weights_without))
        within = sums[np.maximum(self.end - 1, self.start)] - sums[self.start]
        rest = (group - values) / np.maximum(known - retrained, 1)
        return (mean * weights).sum(-1), below + above + within * rest

    @staticmethod
    def _at(cumulated: Array, positions: NDArray[np.int64]) -> Array:
        """Return cumulative sums at positions along the last axis."""
        shape = (*positions.shape[:-1], cumulated.shape[-1])
        return np.take_along_axis(np.broadcast_to(cumulated, shape), positions, -1)


def _cumulative_sums(values: Array) -> Array:
    """Return cumulative sums along the last axis, starting with the empty sum."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], -1)


def _retrained_weights(validation: Array, scores: Array, budget: int) -> Array:
    """Return the weight of each retrained trial, shape (..., T); 0 for others (score NaN)."""
    order = np.argsort(validation, axis=-1, kind="stable")
    ties = _Ties(np.take_along_axis(validation, order, -1))
    retrained = ~np.isnan(np.take_along_axis(scores, order, -1))
    wins = subset_weights(validation.shape[-1], budget)  # by the group of each trial
    wins = ties.group_sums(np.broadcast_to(wins, retrained.shape))
    weights = np.empty(retrained.shape)
    # The retrained trials of a group share its wins.
    shared = retrained * wins / np.maximum(ties.group_sums(retrained), 1)
    np.put_along_axis(weights, order, shared, -1)
    return weights


def _checked_arrays(validation: Sequence[float], tests: Mapping[int, float]) -> tuple[Array, Array]:
    """Check both arguments, and return them as arrays; untested trials have the score NaN."""
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
