"""Ranks against scipy, Demšar's table and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reality_check.statistics import critical_difference, rank_methods

#: Demšar (2006), table 5 (a): q at 0.05 and 0.10 for 2 to 10 methods.
Q_05 = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)
Q_10 = (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920)


def blocks(rows: list[list[float]]) -> list[dict[str, float]]:
    return [dict(zip("abcdefghij", row, strict=False)) for row in rows]


@pytest.mark.parametrize("methods", range(2, 11))
def test_critical_differences_are_those_of_the_table(methods: int) -> None:
    for confidence, table in ((0.95, Q_05), (0.9, Q_10)):
        q = critical_difference(methods, 14, confidence) / math.sqrt(methods * (methods + 1) / 84)
        assert q == pytest.approx(table[methods - 2], abs=0.0011)


def test_demsars_example() -> None:
    # Section 3.2.2: 4 classifiers on 14 data sets, critical difference 1.25.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4).map(float), min_size=3, max_size=3), min_size=2, max_size=6)
)
def test_ranks_and_statistic_are_scipys(rows: list[list[float]]) -> None:
    found = rank_methods(blocks(rows))
    expected = np.mean([stats.rankdata([-v for v in row]) for row in rows], axis=0)
    means = dict(zip(found.methods, found.mean_ranks, strict=True))
    assert [means[name] for name in "abc"] == pytest.approx(expected.tolist())
    assert list(found.mean_ranks) == sorted(found.mean_ranks)
    with np.errstate(all="ignore"):
        theirs = stats.friedmanchisquare(*np.array(rows).T).statistic
    assert found.statistic == pytest.approx(0.0 if math.isnan(theirs) else theirs, abs=1e-9)


def test_the_p_value_is_that_of_all_orders() -> None:
    rows = [[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [3.0, 2.0, 1.0]]
    found = rank_methods(blocks(rows))
    orders = list(itertools.permutations([1.0, 2.0, 3.0]))
    reached = total = 0
    for some in itertools.product(orders, repeat=3):
        sums = np.sum(some, axis=0)
        total += 1
        # Observed rank sums are 4, 5 and 9: 14 from 6, 6, 6.
        reached += ((sums - 6) ** 2).sum() >= 14
    assert found.p_value == pytest.approx(reached / total, abs=0.015)


def test_the_p_value_tends_to_friedmans() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal([0.35, 0.2, 0.0, 0.0], 1, (40, 4)).tolist()
    found = rank_methods(blocks(rows))
    theirs = stats.friedmanchisquare(*np.array(rows).T)
    assert found.p_value == pytest.approx(theirs.pvalue, abs=0.015)


def test_two_blocks_that_agree_are_no_proof() -> None:
    found = rank_methods(blocks([[4.0, 3.0, 2.0, 1.0]] * 2))
    assert found.p_value == pytest.approx(1 / 24, abs=0.01)
    assert not found.enough
    assert not found.distinct
    assert found.groups == ((0, 3),)


@pytest.mark.parametrize(("methods", "needed"), [(2, 4), (3, 3), (4, 3), (7, 3), (10, 3)])
def test_the_blocks_needed_are_the_fewest_that_can_show_anything(methods: int, needed: int) -> None:
    rows = [[float(-i) for i in range(methods)]]
    found = rank_methods(blocks(rows))
    assert found.blocks_needed == needed
    assert critical_difference(methods, needed) < methods - 1
    assert critical_difference(methods, needed - 1) >= methods - 1


def test_groups_are_the_widest_runs_within_the_critical_difference() -> None:
    rows = [[9.0, 8.0, 7.0, 0.0, -1.0, -2.0], [9.0, 8.0, 7.0, 0.0, -1.0, -2.0]] * 5
    found = rank_methods(blocks(rows))
    assert found.mean_ranks == (1, 2, 3, 4, 5, 6)
    assert found.critical_difference == pytest.approx(2.3845, abs=1e-3)
    assert found.groups == ((0, 2), (1, 3), (2, 4), (3, 5))
    assert found.distinct


def test_blocks_must_name_the_same_methods() -> None:
    with pytest.raises(ValueError, match="the same two or more methods"):
        rank_methods([{"a": 1.0, "b": 2.0}, {"a": 1.0}])
    with pytest.raises(ValueError, match="0 blocks"):
        rank_methods([])
    with pytest.raises(ValueError, match="at least one block"):
        rank_methods([{"a": 1.0}])


def test_all_ties_are_no_evidence() -> None:
    found = rank_methods(blocks([[1.0, 1.0, 1.0]] * 4))
    assert (found.statistic, found.p_value) == (0, 1)
    assert found.mean_ranks == (2, 2, 2)
