"""Paired differences and effect sizes against scipy, brute force and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.welch import welch_difference

from reality_check.statistics import (
    cliffs_delta,
    cohens_d,
    paired_difference,
    paired_effect,
    probability_of_improvement,
)

FIRST = [0.281, 0.276, 0.290, 0.285, 0.279]
SECOND = [0.270, 0.268, 0.281, 0.279, 0.266]
values = st.lists(st.integers(0, 12), min_size=1, max_size=7)


def test_the_paired_difference_is_scipys() -> None:
    ours = paired_difference(FIRST, SECOND)
    theirs = stats.ttest_rel(FIRST, SECOND)
    low, high = theirs.confidence_interval(0.95)
    assert ours.mean == pytest.approx((low + high) / 2)
    assert ours.half_width == pytest.approx((high - low) / 2)
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert ours.n == (5, 5)


def test_common_seeds_make_a_sure_difference_of_an_unsure_one() -> None:
    noise = np.array([0.0, 0.05, -0.04, 0.02])
    first, second = (0.31 + noise).tolist(), (0.30 + noise + [0, 1e-4, 0, -1e-4]).tolist()
    paired, welch = paired_difference(first, second), welch_difference(first, second)
    assert paired.mean == pytest.approx(welch.mean)
    assert paired.p_value is not None
    assert welch.p_value is not None
    assert paired.p_value < 1e-4 < 0.5 < welch.p_value


def test_pairs_that_cannot_be_tested() -> None:
    single = paired_difference([0.3], [0.1])
    assert single.mean == pytest.approx(0.2)
    assert single.half_width is None
    assert single.p_value is None
    assert paired_difference([0.5, 0.75, 1.0], [0.25, 0.5, 0.75]).p_value == 0
    assert paired_difference([0.5, 0.75, 1.0], [0.5, 0.75, 1.0]).p_value == 1
    assert paired_difference([0.5, 0.75], [0.25, 0.5]).p_value is None, "two units are no test"
    assert paired_difference([0.5, math.nan], [0.25, 0.5]).half_width is None
    with pytest.raises(ValueError, match="first has 2 values and second has 1"):
        paired_difference([0.1, 0.2], [0.1])


# -- standardised differences --------------------------------------------------------------------


def test_cohens_d_is_the_formula() -> None:
    found = cohens_d(FIRST, SECOND)
    pooled = math.sqrt((np.var(FIRST, ddof=1) + np.var(SECOND, ddof=1)) / 2)
    assert found is not None
    assert found.value == pytest.approx((np.mean(FIRST) - np.mean(SECOND)) / pooled)
    unequal = cohens_d([*FIRST, 0.283], SECOND)
    spreads = np.var([*FIRST, 0.283], ddof=1), np.var(SECOND, ddof=1)
    weighted = math.sqrt((5 * spreads[0] + 4 * spreads[1]) / 9)
    assert unequal is not None
    assert unequal.value == pytest.approx((np.mean([*FIRST, 0.283]) - np.mean(SECOND)) / weighted)


def test_the_paired_effect_is_the_mean_over_the_spread_of_the_differences() -> None:
    gaps = np.subtract(FIRST, SECOND)
    found = paired_effect(FIRST, SECOND)
    assert found is not None
    assert found.value == pytest.approx(gaps.mean() / gaps.std(ddof=1))


@pytest.mark.parametrize("paired", [True, False])
def test_at_the_ends_of_the_interval_the_observed_effect_is_the_extreme_twentieth(
    paired: bool,
) -> None:
    found = (paired_effect if paired else cohens_d)(FIRST, SECOND)
    assert found is not None
    draw = np.random.default_rng(0)
    for end, above in ((found.low, 0.025), (found.high, 0.975)):
        first = draw.normal(end, 1, (100_000, 5))
        if paired:
            effects = first.mean(axis=1) / first.std(axis=1, ddof=1)
        else:
            second = draw.normal(0, 1, (100_000, 5))
            pooled = np.sqrt((first.var(axis=1, ddof=1) + second.var(axis=1, ddof=1)) / 2)
            effects = (first.mean(axis=1) - second.mean(axis=1)) / pooled
        assert (effects >= found.value).mean() == pytest.approx(above, abs=0.002)


def test_an_effect_may_be_huge_or_absent() -> None:
    huge = paired_effect([10.0, 10.01, 10.02, 10.01, 10.01], [0.0] * 5)
    assert huge is not None
    assert 0 < huge.low < huge.value < huge.high < math.inf
    assert huge.value == pytest.approx(10.01 / math.sqrt(0.00005))
    just_less = paired_effect([10.0, 10.18, 10.36, 10.18, 10.18], [0.0] * 5)
    assert just_less is not None
    assert just_less.low / just_less.value == pytest.approx(huge.low / huge.value, rel=5e-3)
    assert just_less.high / just_less.value == pytest.approx(huge.high / huge.value, rel=5e-3)
    none = paired_effect([1.0, -1.0, 2.0, -2.0, 0.0], [0.0] * 5)
    assert none is not None
    assert none.low == pytest.approx(-none.high)
    assert paired_effect([0.5] * 5, [0.25] * 5) is None
    assert cohens_d([0.5] * 5, [0.25] * 5) is None
    assert cohens_d([*FIRST, math.nan], SECOND) is None
    assert paired_effect(FIRST[:4], SECOND[:4]) is None, "four values standardise nothing"
    assert cohens_d(FIRST, SECOND[:4]) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=5, max_size=8),
    st.floats(0.1, 10),
    st.floats(-10, 10),
)
def test_effects_know_no_unit_and_change_sign_with_the_order(
    pairs: list[tuple[int, int]], scale: float, shift: float
) -> None:
    first, second = (list(map(float, column)) for column in zip(*pairs, strict=True))
    for effect in (cohens_d, paired_effect):
        found = effect(first, second)
        swapped = effect(second, first)
        moved = effect([scale * v + shift for v in first], [scale * v + shift for v in second])
        if found is None or swapped is None or moved is None or abs(found.value) > 50:
            continue
        assert swapped.value == pytest.approx(-found.value)
        assert swapped.low == pytest.approx(-found.high, abs=1e-6)
        assert moved.value == pytest.approx(found.value, rel=1e-6, abs=1e-6)
        assert moved.low == pytest.approx(found.low, rel=1e-4, abs=1e-4)


# -- who wins how often --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(values, values)
def test_the_probability_is_the_share_of_pairs_and_delta_its_excess(
    first: list[int], second: list[int]
) -> None:
    pairs = list(itertools.product(first, second))
    wins = sum(a > b for a, b in pairs) + sum(a == b for a, b in pairs) / 2
    found, delta = probability_of_improvement(first, second), cliffs_delta(first, second)
    other = probability_of_improvement(second, first)
    assert found is not None
    assert delta is not None
    assert other is not None
    assert found.value == pytest.approx(wins / len(pairs))
    u = stats.mannwhitneyu(first, second).statistic
    assert found.value == pytest.approx(u / len(pairs))
    assert delta.value == pytest.approx(np.mean([np.sign(a - b) for a, b in pairs]), abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (other.low, other.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)
    assert delta.low == pytest.approx(2 * found.low - 1)


def newcombe(share: float, m: int, n: int, p: float) -> float:
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
