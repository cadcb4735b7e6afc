"""Statistics against golden values, scipy and plain loops."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.welch import estimate, welch_difference

from reality_check.statistics import (
    Estimate,
    compare_estimates,
    holm,
    t_interval,
)

samples = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=12)


def test_the_golden_interval_of_the_protocol() -> None:
    interval = t_interval([20.9 + 0.1 * i for i in range(10)])
    assert interval.mean == pytest.approx(21.35)
    assert interval.half_width == pytest.approx(0.216585, abs=5e-7)
    assert interval.n == 10
    assert interval.low == pytest.approx(21.35 - 0.216585, abs=1e-6)
    assert interval.high == pytest.approx(21.35 + 0.216585, abs=1e-6)


def test_one_value_has_no_interval_rather_than_one_of_width_zero() -> None:
    interval = t_interval([0.25])
    assert interval == Estimate(0.25, None, None, None, 1)
    assert interval.low is None
    assert interval.high is None


def test_no_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        t_interval([])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_not_averaged_away(bad: float) -> None:
    interval = t_interval([0.2, bad, 0.3])
    assert math.isnan(interval.mean)
    assert interval.half_width is None
    assert interval.n == 3


@given(samples)
def test_the_interval_is_scipys(values: list[float]) -> None:
    interval = t_interval(values)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    quantile = stats.t.ppf(0.975, len(values) - 1)
    assert interval.mean == pytest.approx(np.mean(values), abs=1e-12)
    assert interval.half_width == pytest.approx(quantile * error, abs=1e-9)


@given(samples, samples)
def test_the_difference_is_scipys_welch_test(first: list[float], second: list[float]) -> None:
    if np.std(first) < 1e-4 or np.std(second) < 1e-4:  # scipy warns of lost digits
        return
    ours = welch_difference(first, second)
    theirs = stats.ttest_ind(first, second, equal_var=False)
    low, high = theirs.confidence_interval(0.95)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    assert ours.half_width == pytest.approx((high - low) / 2, abs=1e-9)
    assert ours.mean == pytest.approx((high + low) / 2, abs=1e-9)
    assert ours.degrees == pytest.approx(theirs.df)
    assert ours.n == (len(first), len(second))


def test_samples_without_spread() -> None:
    assert welch_difference([0.5] * 3, [0.25] * 3).p_value == 0
    assert welch_difference([0.5] * 3, [0.5] * 3).p_value == 1
    assert welch_difference([0.5, 0.5], [0.5, 0.5]).half_width == 0


def test_holm_golden() -> None:
    # Sorted .005, .01, .03, .04 times 4, 3, 2, 1, made monotone.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.03]) == [0.03]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_loop_rejects(p_values: list[float]) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] * (len(p_values) - step) >= 0.05:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p < 0.05} == rejected


def test_pairs_follow_the_ranking_and_share_one_correction() -> None:
    generator = random.Random(1)
    values = {
        name: [level + generator.gauss(0, 0.01) for _ in range(5)]
        for name, level in (("low", 0.1), ("high", 0.3), ("middle", 0.29))
    }
    measured = {name: estimate(found) for name, found in values.items()}
    pairs = compare_estimates({"one": measured})["one"]
    assert [(c.better, c.other) for c in pairs] == [
        ("high", "middle"),
        ("high", "low"),
        ("middle", "low"),
    ]
    raw = [stats.ttest_ind(values[c.better], values[c.other], equal_var=False) for c in pairs]
    assert [c.adjusted_p for c in pairs] == pytest.approx(holm([r.pvalue for r in raw]))
    assert [c.pairs for c in pairs] == [3, 3, 3]
    assert pairs[1].distinct
    categories = compare_estimates({"one": measured, "two": measured})
    twice = [c.adjusted_p for category in categories.values() for c in category]
    assert twice == pytest.approx(holm([r.pvalue for r in raw] * 2)), "a family of both categories"
    assert {c.pairs for category in categories.values() for c in category} == {6}


def test_pairs_that_belong_together_are_compared_unit_by_unit() -> None:
    values = {"a": [0.30, 0.32, 0.37], "b": [0.29, 0.305, 0.36], "c": [0.1, 0.3, 0.2]}
    pairs = compare_estimates(
        {"one": {name: estimate(found) for name, found in values.items()}},
        lambda category, *pair: category == "one" and "c" not in pair,
    )["one"]
    theirs = {
        ("a", "b"): stats.ttest_rel(values["a"], values["b"]).pvalue,
        ("a", "c"): stats.ttest_ind(values["a"], values["c"], equal_var=False).pvalue,
        ("b", "c"): stats.ttest_ind(values["b"], values["c"], equal_var=False).pvalue,
    }
    found = {(c.better, c.other): c.difference.p_value for c in pairs}
    assert found == pytest.approx(theirs)


def test_pairs_that_cannot_be_tested_do_not_weaken_the_others() -> None:
    values = {"a": [0.3, 0.31, 0.32], "b": [0.2, 0.21, 0.2], "single": [0.1], "nan": [math.nan]}
    measured = {name: estimate(found) for name, found in values.items()}
    pairs = compare_estimates({"one": measured})["one"]
    assert {(c.better, c.other): c.pairs for c in pairs} == {
        ("a", "b"): 1,
        ("a", "single"): 1,
        ("b", "single"): 1,
    }
    assert not pairs[1].distinct
    assert pairs[1].adjusted_p is None
