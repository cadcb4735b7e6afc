"""Looks at a comparison while it grows: published boundaries, and errors that stay small."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import multivariate_normal, norm

from reality_check.statistics import (
    Look,
    at_look,
    compare_estimates,
    expected_share,
    nominal_levels,
    over_searches,
)


@pytest.mark.parametrize(
    "boundaries",
    [
        [1.960],
        [2.963, 1.969],
        [3.710, 2.511, 1.993],
        [4.333, 2.963, 2.359, 2.014],
        [4.877, 3.357, 2.680, 2.290, 2.031],
    ],
    ids=len,
)
def test_boundaries_are_the_published_ones(boundaries: list[float]) -> None:
    """Of the O'Brien-Fleming-like function at 5 % on two sides, as Lan and DeMets's tables."""
    count = len(boundaries)
    levels = nominal_levels([(look + 1) / count for look in range(count)])
    assert [norm.isf(level / 2) for level in levels] == pytest.approx(boundaries, abs=6e-4)


def test_two_looks_spend_the_level() -> None:
    ends = [norm.isf(p / 2) for p in nominal_levels([0.3, 1.0], level=0.01)]
    both = multivariate_normal(cov=[[1, 0.3**0.5], [0.3**0.5, 1]])
    assert 1 - both.cdf(ends, lower_limit=[-z for z in ends]) == pytest.approx(0.01, abs=1e-5)


def test_levels_of_a_look_do_not_depend_on_later_ones() -> None:
    assert nominal_levels([0.4, 0.7, 1.0])[:2] == nominal_levels([0.4, 0.7])


def test_a_single_look_changes_nothing() -> None:
    look = Look.at(10, [10])
    assert look.level == pytest.approx(0.05)
    for p_value in (1e-12, 0.03, 0.7):
        assert look.p_value(p_value) == p_value
    assert look.stretch(7.0) == pytest.approx(1)


@pytest.mark.parametrize("size", [4, 7, 10])
def test_a_p_value_is_the_level_at_which_the_look_would_just_count(size: int) -> None:
    look = Look.at(size, [4, 7, 10])
    for level in (0.001, 0.05, 0.3):
        nominal = nominal_levels(look.shares, level)[-1]
        assert look.p_value(nominal) == pytest.approx(level, rel=1e-6)
    assert look.p_value(1.0) == 1.0
    assert look.p_value(0.0) < 1e-6
    assert look.p_value(look.level) == pytest.approx(0.05)


def test_an_interval_leaves_out_0_where_p_is_below_5_percent() -> None:
    look, draw = Look.at(4, [4, 7, 10]), np.random.default_rng(0)
    seen = set()
    for gap in np.linspace(0, 12, 60):
        one, other = draw.normal(size=(2, 4, 1)) + np.array([[[gap]], [[0.0]]])
        estimates = {"one": at_look(over_searches(one), look)}
        estimates["other"] = at_look(over_searches(other), look)
        (pair,) = compare_estimates(estimates)
        assert pair.difference.low is not None
        assert pair.distinct == (pair.difference.low > 0)
        seen.add(pair.distinct)
    assert seen == {True, False}


def test_normal_campaigns_err_in_5_percent_at_any_look_and_in_more_without_the_levels() -> None:
    sizes, draw = [4, 6, 8, 10], np.random.default_rng(1)
    one, other = draw.standard_normal((2, 20_000, 10))
    found = {True: np.zeros(20_000, bool), False: np.zeros(20_000, bool)}
    for size, level in zip(sizes, nominal_levels([size / 10 for size in sizes]), strict=True):
        p_values = stats.ttest_ind(one[:, :size], other[:, :size], axis=1, equal_var=False).pvalue
        found[True] |= p_values < level
        found[False] |= p_values < 0.05
    assert 0.035 < found[True].mean() < 0.055
    assert found[False].mean() > 0.08


def test_how_many_searches_are_made_to_the_answer() -> None:
    sizes = [4, 7, 10]
    shares = [expected_share(sizes, gap) for gap in (0.0, 1.5, 3.0, 50.0)]
    assert shares[0] > 0.98
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0.4)
    assert expected_share(sizes, 2.0, methods=4) > expected_share(sizes, 2.0, methods=2)


def test_the_expected_share_is_that_of_campaigns_that_are_decided_one_by_one() -> None:
    sizes, count = [4, 7], 150
    scores = np.random.default_rng(0).standard_normal((count, 3, 7))
    scores[:, 0] += 2.5
    spent = []
    for campaign in scores:
        for size in sizes:
            look = Look.at(size, sizes)
            names = zip("abc", campaign[:, :size, None], strict=True)
            pairs = compare_estimates({n: at_look(over_searches(v), look) for n, v in names})
            if all(pair.distinct for pair in pairs if pair.better == pairs[0].better):
                break
        spent.append(size / 7)
    assert expected_share(sizes, 2.5, methods=3, draws=count) == pytest.approx(np.mean(spent))
