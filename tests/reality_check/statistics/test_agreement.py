"""Rank agreement against scipy and all orders; the winner's curse against a simulation of it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reality_check.statistics import rank_agreement

points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(points)
def test_it_is_spearmans_correlation(pairs: list[tuple[int, int]]) -> None:
    x, y = (list(map(float, column)) for column in zip(*pairs, strict=True))
    found = rank_agreement(x, y)
    assert found.n == len(pairs)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(found.correlation)
        assert found.p_value == 1
    else:
        assert found.correlation == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
    both = [(a, b) for a, b in itertools.combinations(pairs, 2) if a[0] != b[0] and a[1] != b[1]]
    assert found.pairs == len(both)
    assert found.alike == sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in both)


def test_the_p_value_is_exact_for_few_points() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 3.0, 2.0, 5.0, 4.0]
    found = rank_agreement(x, y)
    every = [stats.spearmanr(x, order).statistic for order in itertools.permutations(y)]
    expected = np.mean([abs(r) >= abs(found.correlation) - 1e-9 for r in every])
    assert found.p_value == pytest.approx(expected)
    four = rank_agreement([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
    assert four.p_value == pytest.approx(2 / 24), "four methods in the same order prove nothing"


def test_the_p_value_of_many_points_is_scipys() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=40)
    y = 0.3 * x + draw.normal(size=40)
    found = rank_agreement(x.tolist(), y.tolist())
    theirs = stats.spearmanr(x, y)
    assert found.correlation == pytest.approx(theirs.statistic)
    assert found.p_value == pytest.approx(theirs.pvalue, abs=0.015)


def test_one_thing_and_none_say_nothing() -> None:
    found = rank_agreement([1.0], [2.0])
    assert math.isnan(found.correlation)
    assert (found.n, found.pairs, found.p_value) == (1, 0, 1)
    assert rank_agreement([], []).n == 0
