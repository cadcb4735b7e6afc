"""Our statistics beside statsmodels': another implementation, by other people."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.welch import welch_difference

from reality_check.statistics import (
    Shares,
    estimate_difference,
    holm,
    over_searches,
    planned_error,
    smallest_detectable,
    variance_shares,
)

multitest = pytest.importorskip("statsmodels.stats.multitest")
weightstats = pytest.importorskip("statsmodels.stats.weightstats")
DRAW = np.random.default_rng(4)


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_holm(count: int) -> None:
    p = DRAW.uniform(0, 0.1, count)
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1])


@pytest.mark.parametrize(("first", "second"), [(3, 3), (5, 9), (20, 4)])
def test_welch(first: int, second: int) -> None:
    a, b = DRAW.normal(1, 2, first), DRAW.normal(0, 1, second)
    ours = welch_difference(a.tolist(), b.tolist())
    theirs = weightstats.CompareMeans.from_data(a, b)
    _, p, degrees = theirs.ttest_ind(usevar="unequal")
    assert ours.p_value == pytest.approx(p)
    assert (ours.low, ours.high) == pytest.approx(theirs.tconfint_diff(usevar="unequal"))
    assert degrees > 0


def test_means_of_searches_are_compared_as_single_values_are() -> None:
    a, b = DRAW.normal(1, 2, (5, 3)), DRAW.normal(0, 1, (6, 3))
    ours = estimate_difference(over_searches(a.tolist()), over_searches(b.tolist()))
    theirs = weightstats.CompareMeans.from_data(a.mean(axis=1), b.mean(axis=1))
    assert (ours.low, ours.high) == pytest.approx(theirs.tconfint_diff(usevar="unequal"))
    one = weightstats.DescrStatsW(a.mean(axis=1))
    estimate = over_searches(a.tolist())
    assert (estimate.low, estimate.high) == pytest.approx(one.tconfint_mean())


def test_shares_of_variance_are_those_of_a_random_effect() -> None:
    """Of balanced data the analysis of variance and restricted maximum likelihood agree."""
    lm = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    groups = np.repeat(np.arange(12), 5)
    values = DRAW.normal(0, 2, 12)[groups] + DRAW.normal(0, 1, 60)
    fitted = lm.MixedLM(values, np.ones((60, 1)), groups).fit(reml=True)
    shares = variance_shares(values.reshape(12, 5).tolist())
    assert shares.search == pytest.approx(float(fitted.cov_re[0, 0]), rel=1e-3)
    assert shares.training == pytest.approx(float(fitted.scale), rel=1e-3)


@pytest.mark.parametrize("searches", [10, 40])
def test_the_smallest_detectable_difference_has_the_power_it_is_said_to_have(searches: int) -> None:
    """Theirs takes twice the degrees of one side as known; with many searches that is the same."""
    power = pytest.importorskip("statsmodels.stats.power").TTestIndPower()
    error = planned_error(Shares(search=1.5, training=0.4), searches, 3)
    difference = smallest_detectable(error, searches - 1)
    spread = math.sqrt(1.5 + 0.4 / 3)
    found = power.power(difference / spread, searches, alpha=0.05, ratio=1)
    assert found == pytest.approx(0.8, abs=0.1 / searches)
