"""All subsets of one search, against an enumeration of them and against simulated searches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reality_check.statistics import (
    MAX_LEFT_OUT,
    Shares,
    all_subsets,
    budget_curve,
    estimate_difference,
    jackknife_error,
    left_out,
    planned_error,
    planned_subsets_error,
    scatter_error,
    subset_degrees,
    subset_estimates,
    subset_shares,
    subset_weights,
    t_quantile,
)


def enumerated(
    validation: Sequence[int], tests: Mapping[int, int], budget: int, without: int = -1
) -> Fraction | None:
    """The mean over every subset in turn; of trials tied with its winner, any retrained one."""
    total, weight = Fraction(0), Fraction(0)
    trials = [trial for trial in range(len(validation)) if trial != without]
    for subset in itertools.combinations(trials, budget):
        best = max(validation[trial] for trial in subset)
        scores = [tests[t] for t in trials if validation[t] == best and t in tests]
        if scores:
            total += Fraction(sum(scores), len(scores))
            weight += 1
    return total / weight if weight else None


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[int], dict[int, int], int]:
    """Up to seven trials, many with equal validation scores, any of them retrained."""
    validation = draw(st.lists(st.integers(0, 4), min_size=2, max_size=7))
    places = st.integers(0, len(validation) - 1)
    tests = draw(st.dictionaries(places, st.integers(-9, 9), min_size=1))
    return validation, tests, draw(st.integers(1, len(validation)))


@given(searches())
@example(([1, 1, 1, 2], {0: 1, 1: 2, 2: 4, 3: 8}, 1))
def test_the_estimate_and_its_error_are_those_of_every_subset_in_turn(
    search: tuple[list[int], dict[int, int], int],
) -> None:
    validation, tests, budget = search
    expected = enumerated(validation, tests, budget)
    if expected is None:  # no subset is won by a trial that was retrained
        return
    found = all_subsets(validation, tests, budget)
    assert found.mean == pytest.approx(float(expected), abs=1e-12)
    assert found.n == len(validation)
    trials = range(len(validation))
    deleted = [enumerated(validation, tests, budget, without) for without in trials]
    if (
        budget == len(validation)
        or None in deleted
        or subset_degrees(len(trials), budget) < 2
        or left_out(validation, tests, budget) > MAX_LEFT_OUT
    ):
        assert found.error is None
        assert found.half_width is None
        return
    values = [float(value) for value in deleted if value is not None]
    assert found.deleted == pytest.approx(values, abs=1e-9)
    assert found.error == pytest.approx(spread_of(values), abs=1e-9)
    other = all_subsets(validation[::-1], tests, budget)
    if other.deleted:
        differences = np.subtract(values, other.deleted)
        joint = estimate_difference(found, other, shared=1.0)
        assert joint.mean == found.mean - other.mean
        assert joint.error == pytest.approx(spread_of(list(differences)), abs=1e-9)
        assert joint.degrees == min(found.degrees + 1, found.n - 1)
        welch = estimate_difference(found, other)
        few_shared = estimate_difference(found, other, shared=0.5)
        assert few_shared.degrees == welch.degrees
        if budget == 1:  # means of values, by Welch and Satterthwaite
            assert found.effective_n == pytest.approx(found.n)
            assert found.degrees <= welch.degrees <= 2 * found.degrees + 1e-9
            assert few_shared.error == max(joint.error, welch.error)
        else:
            assert welch.degrees == found.degrees
            assert few_shared.error == joint.error


def spread_of(deleted: Sequence[float]) -> float:
    """The jackknife's error as it is defined."""
    squares = sum((value - np.mean(deleted)) ** 2 for value in deleted)
    return math.sqrt((len(deleted) - 1) / len(deleted) * squares)


@pytest.mark.parametrize(("trials", "budget", "known"), [(16, 5, True), (16, 8, False)])
def test_an_interval_takes_three_effective_trials(trials: int, budget: int, known: bool) -> None:
    found = all_subsets(
        [0.1 * n for n in range(trials)], {n: 0.1 * n for n in range(trials)}, budget
    )
    assert (found.half_width is not None) == (found.error is not None) == known


@pytest.mark.parametrize(("trials", "budget"), [(1, 1), (6, 1), (6, 4), (6, 6), (50, 10)])
def test_the_weights_are_the_binomials(trials: int, budget: int) -> None:
    weights = subset_weights(trials, budget)
    whole = math.comb(trials, budget)
    expected = [math.comb(i - 1, budget - 1) / whole for i in range(1, trials + 1)]
    assert weights == pytest.approx(expected, rel=1e-12)
    assert weights.sum() == pytest.approx(1)


def test_the_weights_of_many_trials_neither_overflow_nor_lose_their_sum() -> None:
    weights = subset_weights(20_000, 5_000)
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)
    assert weights[-1] == pytest.approx(0.25)


def test_the_planned_error_is_that_of_as_many_winners_as_the_weights_amount_to() -> None:
    shares = Shares(4.0, 1.0)
    once = planned_error(shares, 1, 1)
    assert planned_subsets_error(shares, 10, 10) == pytest.approx(once), "one search of all"
    assert planned_subsets_error(shares, 25, 1) == pytest.approx(once / 5), "25 searches of one"


def test_the_shares_make_the_estimate() -> None:
    draw = np.random.default_rng(3)
    validation = draw.normal(size=30).round(1).tolist()
    best = np.argsort(validation)[-9:].tolist()
    tests = {trial: float(draw.normal()) for trial in best}
    shares = subset_shares(validation, tests, 6)
    found = all_subsets(validation, tests, 6)
    assert found.mean == pytest.approx(sum(shares[t] * tests[t] for t in tests))
    assert sum(shares.values()) == pytest.approx(1)


def test_what_was_not_retrained_is_known_by_its_share() -> None:
    validation = list(range(50))
    tests = dict.fromkeys(range(35, 50), 0.5)
    for budget in (1, 7, 8, 10, 25):
        expected = math.comb(35, budget) / math.comb(50, budget)
        assert left_out(validation, tests, budget) == pytest.approx(expected)
    curve = budget_curve(validation, tests)
    assert list(curve) == list(range(10, 25))
    assert left_out(validation, tests, 9) > MAX_LEFT_OUT
    assert curve[10] == all_subsets(validation, tests, 10)
    assert list(budget_curve(range(5), dict.fromkeys(range(5), 0.5))) == [1, 2]


def test_equal_scores_have_an_interval_of_no_width() -> None:
    found = all_subsets([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dict.fromkeys(range(6), 0.1), 2)
    assert found.mean == pytest.approx(0.1)
    assert found.half_width == 0
    assert found.error == 0


def test_bad_input_is_said_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="budget=4, but there are 3 trials; a budget is 1 to 3"):
        all_subsets([0.1, 0.2, 0.3], {2: 0.1}, 4)
    with pytest.raises(ValueError, match="budget=0"):
        subset_weights(3, 0)
    with pytest.raises(ValueError, match="tests is empty"):
        all_subsets([0.1, 0.2], {}, 1)
    with pytest.raises(ValueError, match="score of trial 2, but validation has 2 trials"):
        all_subsets([0.1, 0.2], {2: 0.1}, 1)
    with pytest.raises(ValueError, match="validation of trial 1 is nan; a diverged trial counts"):
        all_subsets([0.1, math.nan], {0: 0.1}, 1)


def test_a_score_that_is_not_finite_leaves_no_mean() -> None:
    found = all_subsets([0.1, 0.2, 0.3], {1: math.nan, 2: 0.3}, 2)
    assert math.isnan(found.mean)
    assert found.half_width is None


def test_many_searches_at_once_are_each_in_turn() -> None:
    draw = np.random.default_rng(1)
    validation = draw.normal(size=(6, 12)).round(1)
    tests = np.where(validation > -1, draw.normal(size=(6, 12)), np.nan)
    estimates, deleted = subset_estimates(validation, tests, 3)
    errors = jackknife_error(deleted)
    for row in range(6):
        known = {int(t): float(tests[row, t]) for t in np.flatnonzero(~np.isnan(tests[row]))}
        found = all_subsets(validation[row].tolist(), known, 3)
        assert estimates[row] == pytest.approx(found.mean)
        assert errors[row] == pytest.approx(found.error)
        found = all_subsets(validation[row].tolist(), known, 3, retrained=True)
        scatter = scatter_error(validation, tests, 3)[row]
        assert found.error == pytest.approx(max(errors[row], scatter))


# -- is it right, and does its interval hold? ----------------------------------------------------

#: A trial's quality, and how well validation and a retraining show it.
QUALITY, SEEN, RETRAINED = 1.0, 0.5, 0.5


def simulated(draw: np.random.Generator, campaigns: int, trials: int) -> tuple[np.ndarray, ...]:
    """Trials with skewed qualities, as those of a search are: many middling ones, a ceiling."""
    quality = -QUALITY * draw.exponential(size=(campaigns, trials))
    noise = draw.normal(size=(2, campaigns, trials))
    return quality + SEEN * noise[0], quality + RETRAINED * noise[1]


def test_the_estimate_is_that_of_independent_searches_and_its_interval_holds() -> None:
    draw = np.random.default_rng(5)
    trials, budget, campaigns = 50, 10, 4000
    validation, tests = simulated(draw, 40_000, budget)
    truth = np.take_along_axis(tests, validation.argmax(-1)[:, None], -1).mean()
    validation, tests = simulated(draw, campaigns, trials)
    estimates, deleted = subset_estimates(validation, tests, budget)
    errors = jackknife_error(deleted)
    assert estimates.mean() == pytest.approx(truth, abs=0.02), "unbiased"
    assert np.sqrt((errors**2).mean()) == pytest.approx(estimates.std(), rel=0.1)
    one = all_subsets(validation[0].tolist(), dict(enumerate(tests[0].tolist())), budget)
    assert one.half_width is not None
    assert one.error is not None
    reach = one.half_width / one.error
    assert 0.93 <= (np.abs(estimates - truth) <= reach * errors).mean() <= 0.97
    # The best 15 alone: nearly the same, and nearly as unbiased.
    kept = np.argsort(np.argsort(validation, -1), -1) >= trials - 15
    best, best_deleted = subset_estimates(validation, np.where(kept, tests, np.nan), budget)
    assert best.mean() == pytest.approx(truth, abs=0.04)
    covered = np.abs(best - truth) <= reach * jackknife_error(best_deleted)
    assert 0.93 <= covered.mean() <= 0.97


def test_the_scatter_of_all_retrained_trials_around_their_regression() -> None:
    validation = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    tests = np.array([np.nan, 1.0, 3.0, 3.0, 5.0])  # 1.2 a step; off by -0.2, 0.6, -0.6 and 0.2
    weights = np.array([1, 2, 3, 4]) / 10  # of pairs
    expected = 0.8 * math.sqrt((2 * 0.04 + 2 * 0.36) / 2 * (weights**2).sum())
    assert scatter_error(validation, tests, 2) == pytest.approx(expected)
    assert scatter_error(validation, np.nan_to_num(tests), 2) == 0, "all of them are retrained"
    assert scatter_error(validation[1:], np.array([np.nan, 3.0, 3.0, 5.0]), 2) == 0, "three"


def test_intervals_hold_where_validation_says_little_and_some_settings_test_badly() -> None:
    """As in the bank `phases`: among the few that win most, there may be none of the bad ones."""
    draw = np.random.default_rng(3)
    trials, budget = 50, 10
    shape = (3000, trials)
    validation = draw.normal(size=shape)
    tests = draw.normal(size=shape) - 6 * (draw.random(shape) < 0.25)
    known = np.where(np.argsort(np.argsort(validation, -1), -1) >= trials - 15, tests, np.nan)
    means, deleted = subset_estimates(validation, known, budget)
    reach = t_quantile(subset_degrees(trials, budget))
    jackknife = jackknife_error(deleted)
    shipped = np.maximum(jackknife, scatter_error(validation, known, budget))
    covered = [(np.abs(means + 1.5) <= reach * e).mean() for e in (jackknife, shipped)]
    assert covered[0] < 0.9 < 0.92 < covered[1], covered
