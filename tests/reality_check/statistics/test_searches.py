"""Estimates over searches against scipy, plain sums and simulated nested experiments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.welch import welch_difference

from reality_check.statistics import (
    Estimate,
    Shares,
    allow_for_skew,
    estimate_difference,
    over_searches,
    planned_error,
    smallest_detectable,
    variance_shares,
    welch_degrees,
)

FIRST = [[0.281, 0.276], [0.290, 0.285], [0.279, 0.270], [0.284, 0.284]]
SECOND = [[0.270, 0.268], [0.281, 0.279], [0.266, 0.262]]


def means(searches: list[list[float]]) -> list[float]:
    return [float(np.mean(values)) for values in searches]


def test_the_estimate_is_scipys_interval_of_the_means() -> None:
    found = over_searches(FIRST)
    theirs = stats.ttest_1samp(means(FIRST), 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    assert found.error == pytest.approx(stats.sem(means(FIRST)))
    assert (found.degrees, found.n) == (3, 4)


def test_many_retrainings_of_one_winner_say_nothing_of_the_loss() -> None:
    assert over_searches([[0.25, 0.26, 0.27]]) == Estimate(pytest.approx(0.26), None, None, None, 1)


def test_every_search_counts_once_however_often_its_winner_was_trained() -> None:
    assert over_searches([[0.0] * 9, [1.0]]).mean == 0.5


# -- differences ---------------------------------------------------------------------------------


def test_infinite_degrees_are_the_normal_test() -> None:
    one = Estimate(0.30, 0.0, 0.003, math.inf, 50)
    other = Estimate(0.29, 0.0, 0.004, math.inf, 50)
    found = estimate_difference(one, other)
    assert found.half_width == pytest.approx(stats.norm.ppf(0.975) * 0.005)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(2))
    mixed = estimate_difference(one, Estimate(0.29, 0.0, 0.004, 4, 5))
    assert mixed.degrees == pytest.approx(25**2 / 16**2 * 4)


@pytest.mark.parametrize(("trials", "degrees"), [((30, 30), 4), ((30, 5), 4), ((5, 5), 8)])
def test_weighted_units_have_at_most_the_degrees_of_one_estimate(
    trials: tuple[int, int], degrees: float
) -> None:
    """Of equal errors, Satterthwaite's are 8 for 4 and 4."""
    one, other = (Estimate(0.3, 0.0, 0.003, 4, n) for n in trials)
    assert estimate_difference(one, other).degrees == pytest.approx(degrees)


def test_a_small_error_of_few_degrees_leaves_those_of_the_large_one() -> None:
    large, small = Estimate(0.3, 0.0, 0.004, 20, 50), Estimate(0.3, 0.0, 0.0001, 2, 3)
    assert estimate_difference(large, small).degrees == pytest.approx(20, rel=0.01)


def test_fewer_than_three_searches_have_an_interval_and_no_test() -> None:
    found = estimate_difference(over_searches(FIRST), over_searches(SECOND[:2]))
    assert found.p_value is None
    assert found.half_width is not None
    single = estimate_difference(over_searches(FIRST), over_searches(SECOND[:1]))
    assert single.half_width is None
    assert single.p_value is None
    two = welch_difference([0.3, 0.31], [0.1, 0.12])
    assert two.half_width is not None
    assert two.p_value is None


# -- variances -----------------------------------------------------------------------------------


def test_the_shares_are_the_method_of_moments() -> None:
    found = variance_shares(FIRST)
    within = np.mean([np.var(row, ddof=1) for row in FIRST])
    assert found.training == pytest.approx(within)
    assert found.search == pytest.approx(np.var(means(FIRST), ddof=1) - within / 2)


def test_shares_that_cannot_be_told_are_absent() -> None:
    assert variance_shares([[0.3], [0.4]]) == Shares(None, None)
    alone = variance_shares([[0.3, 0.4]])
    assert alone.search is None
    assert alone.training == pytest.approx(0.005)
    assert variance_shares([[0.3, 0.4], [0.4, 0.3]]).search == 0


def test_the_shares_are_right_on_average_with_unequal_numbers_of_retrainings() -> None:
    draw = np.random.default_rng(0)
    sizes = [1, 2, 5, 3]
    found = []
    for _ in range(3000):
        winners = draw.normal(0, 2, 4)
        shares = variance_shares(
            [draw.normal(w, 1, size).tolist() for w, size in zip(winners, sizes, strict=True)]
        )
        assert shares.search is not None
        assert shares.training is not None
        found.append((shares.search, shares.training))
    search, training = np.mean(found, axis=0)
    assert search == pytest.approx(4, rel=0.05)
    assert training == pytest.approx(1, rel=0.05)


# -- planning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("searches", "reproductions"), [(3, 3), (5, 2), (10, 1)])
def test_the_smallest_difference_is_found_as_often_as_it_says(
    searches: int, reproductions: int
) -> None:
    shares = Shares(0.8**2, 0.5**2)
    error = planned_error(shares, searches, reproductions)
    gap = smallest_detectable(math.sqrt(2) * error, welch_degrees(searches - 1))
    draw = np.random.default_rng(1)
    methods = draw.normal(0, 0.8, (2, 4000, searches, 1)) + draw.normal(
        0, 0.5, (2, 4000, searches, reproductions)
    )
    first, second = methods.mean(-1)
    p_values = stats.ttest_ind(first + gap, second, axis=-1, equal_var=False).pvalue
    assert (p_values < 0.05).mean() == pytest.approx(0.8, abs=0.03)


def test_the_smallest_difference_of_a_normal_test_is_the_textbooks() -> None:
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert smallest_detectable(1.0, math.inf) == pytest.approx(expected)
    assert smallest_detectable(1.0, 10_000) == pytest.approx(expected, rel=1e-3)
    assert smallest_detectable(1.0, 4, pairs=6) > smallest_detectable(1.0, 4)
    assert smallest_detectable(1.0, 1) == math.inf, "two searches are not tested"
    assert smallest_detectable(0.0, 4) == 0


def test_the_joint_test_of_means_is_scipys_paired_t_test() -> None:
    first, second = means(FIRST[:3]), means(SECOND)
    found = estimate_difference(over_searches(FIRST[:3]), over_searches(SECOND), shared=1.0)
    theirs = stats.ttest_rel(first, second)
    interval = theirs.confidence_interval(0.95)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert (found.degrees, found.n) == (2, (3, 3))


def test_equal_results_are_equal_and_no_evidence() -> None:
    estimate = over_searches(FIRST)
    found = estimate_difference(estimate, estimate, shared=1.0)
    assert (found.mean, found.error, found.p_value) == (0.0, 0.0, 1.0)


def test_an_unknown_variance_is_said() -> None:
    with pytest.raises(ValueError, match=r"Shares\(search=None, training=1.0\) lacks a variance"):
        planned_error(Shares(None, 1.0), 3, 2)


def test_intervals_over_short_searches_are_wider_and_errors_are_not() -> None:
    plain = over_searches(FIRST)
    shown = allow_for_skew(plain, 10)
    assert plain.half_width is not None
    assert shown.half_width == pytest.approx(1.1 * plain.half_width)
    assert (shown.mean, shown.error, shown.degrees, shown.n) == (
        plain.mean,
        plain.error,
        plain.degrees,
        plain.n,
    )
    single = over_searches([[0.25]])
    assert allow_for_skew(single, 10) is single
    wide = allow_for_skew(plain, 5).half_width
    assert wide == pytest.approx(1.2 * plain.half_width)
