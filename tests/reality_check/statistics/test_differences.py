"""Differences and effect sizes against scipy, brute force and simulation."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.welch import welch_difference

from reality_check.statistics import (
    Simultaneous,
    probability_of_improvement,
    simultaneous_p,
    simultaneous_quantile,
)

FIRST = [0.281, 0.276, 0.290, 0.285, 0.279]
SECOND = [0.270, 0.268, 0.281, 0.279, 0.266]
values = st.lists(st.integers(0, 12), min_size=1, max_size=7)


def test_no_spread_makes_any_difference_certain_and_no_difference_none() -> None:
    assert welch_difference([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]).p_value == 0
    assert welch_difference([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]).p_value == 1
    assert welch_difference([0.5, math.nan], [0.25, 0.5]).half_width is None


# -- corrections with simultaneous intervals -----------------------------------------------------


@pytest.mark.parametrize("methods", [2, 6, 21])
@pytest.mark.parametrize("degrees", [2.5, 10, math.inf])
def test_every_pair_is_corrected_by_the_studentized_range(methods: int, degrees: float) -> None:
    for t in (-0.5, 2.0, 3.5):
        expected = stats.studentized_range.sf(math.sqrt(2) * abs(t), methods, degrees)
        assert simultaneous_p(t, degrees, methods, "Tukey") == pytest.approx(expected, abs=1e-4)


def test_one_method_with_each_other_one_is_corrected_by_dunnetts_table() -> None:
    """Two-sided, 5 %: Dunnett (1964), Table II."""
    table = {(5, 3): 3.03, (5, 6): 3.62, (20, 10): 2.95, (math.inf, 6): 2.51}
    actual = {key: simultaneous_quantile(*key, "Dunnett") for key in table}
    assert actual == pytest.approx(table, abs=0.006)


@pytest.mark.parametrize("test", ["Tukey", "Dunnett"])
def test_two_methods_need_no_correction(test: Simultaneous) -> None:
    assert simultaneous_p(2.2, 7, 2, test) == pytest.approx(2 * stats.t.sf(2.2, 7))
    assert simultaneous_quantile(7, 2, test) == pytest.approx(stats.t.ppf(0.975, 7))
    assert simultaneous_p(0, 7, 5, test) == pytest.approx(1)


# -- who wins how often --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(values, values)
def test_the_probability_is_the_share_of_pairs(first: list[int], second: list[int]) -> None:
    pairs = list(itertools.product(first, second))
    wins = sum(a > b for a, b in pairs) + sum(a == b for a, b in pairs) / 2
    found = probability_of_improvement(first, second)
    other = probability_of_improvement(second, first)
    assert found is not None
    assert other is not None
    assert found.value == pytest.approx(wins / len(pairs))
    u = stats.mannwhitneyu(first, second).statistic
    assert found.value == pytest.approx(u / len(pairs))
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (other.low, other.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)


def newcombe(share: float, m: float, n: float, p: float) -> float:
    """How many standard errors the share is from p, squared (method 5)."""
    star = (m + n) / 2 - 1
    spread = p * (1 - p) * (1 + star * (1 - p) / (2 - p) + star * p / (1 + p)) / (m * n)
    return (share - p) ** 2 / spread


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), ([3, 4, 5], [0, 1, 2, 3.5])])
def test_the_interval_solves_newcombes_equation(first: list[float], second: list[float]) -> None:
    found = probability_of_improvement(first, second)
    assert found is not None
    sizes = (len(first), len(second))
    assert newcombe(found.value, *sizes, found.low) == pytest.approx(1.959964**2, rel=1e-5)
    assert newcombe(found.value, *sizes, found.high) == pytest.approx(1.959964**2, rel=1e-5)


def test_samples_that_do_not_overlap_still_have_an_interval() -> None:
    small = probability_of_improvement([3, 4, 5], [0, 1, 2])
    large = probability_of_improvement(range(10, 20), range(10))
    assert small is not None
    assert large is not None
    assert (small.value, small.high) == (1, 1)
    assert 0.4 < small.low < 0.6, "three runs each are no proof"
    assert 0.75 < large.low < 0.9
    assert probability_of_improvement([], [1.0]) is None
    assert probability_of_improvement([math.nan], [1.0]) is None


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_the_interval_covers_the_probability_as_often_as_it_says(shift: float) -> None:
    draw = np.random.default_rng(0)
    truth = stats.norm.cdf(shift / math.sqrt(2))
    covered = 0
    for _ in range(500):
        found = probability_of_improvement(draw.normal(shift, 1, 5), draw.normal(0, 1, 5))
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.93 <= covered / 500 <= 0.995


def test_weights_count_values_as_often_and_make_samples_smaller() -> None:
    first, second = [0.3, 0.1, 0.2], [0.15, 0.25]
    weights = ([0.5, 0.25, 0.25], [0.75, 0.25])
    found = probability_of_improvement(first, second, weights)
    repeated = probability_of_improvement([0.3, 0.3, 0.1, 0.2], [0.15, 0.15, 0.15, 0.25])
    assert found is not None
    assert repeated is not None
    assert found.value == pytest.approx(repeated.value)
    assert found.low < repeated.low < repeated.high < found.high
    sizes = (1 / 0.375, 1 / 0.625)
    assert newcombe(found.value, *sizes, found.low) == pytest.approx(1.959964**2, rel=1e-5)
    alike = probability_of_improvement(first, second, ([1 / 3] * 3, [0.5] * 2))
    plain = probability_of_improvement(first, second)
    assert alike is not None
    assert plain is not None
    assert dataclasses.astuple(alike) == pytest.approx(dataclasses.astuple(plain))
