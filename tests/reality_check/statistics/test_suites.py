"""Statements over several data sets, against brute force, numerical derivatives and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.welch import welch_difference

from reality_check.statistics import (
    MIN_DATA_SETS,
    Centred,
    Difference,
    SuiteComparison,
    adjust_pairs,
    at_least,
    holm,
    mean_over_data_sets,
    on_other_data_sets,
    one_sided_p,
)

#: Statements are made below this p-value.
LEVEL = 0.05

p_values = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1e-300, 1.0])), min_size=1, max_size=6
)


def difference(mean: float, error: float | None = 1.0, degrees: float = 8) -> Difference:
    """A difference of which only these are known."""
    if error is None:
        return Difference(mean, None, None, (1, 1))
    half_width = float(stats.t.ppf(0.975, degrees)) * error
    return Difference(mean, half_width, None, (5, 5), error, degrees)


# -- one data set --------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-0.3, 0.0, 0.4])
def test_a_one_sided_p_value_is_that_of_welchs_test(shift: float) -> None:
    draw = np.random.default_rng(2)
    one, other = draw.normal(shift, 1, 6).tolist(), draw.normal(0, 2, 9).tolist()
    found = welch_difference(one, other)
    for sign, alternative in ((1, "greater"), (-1, "less")):
        expected = stats.ttest_ind(one, other, equal_var=False, alternative=alternative).pvalue
        assert one_sided_p(found, math.inf, sign) == pytest.approx(expected)
    assert found.error is not None
    fewer = stats.t.sf(found.mean / found.error, 5)  # the degrees of freedom of the first sample
    assert one_sided_p(found, 5) == pytest.approx(fewer)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_not_tested_decides_nothing(sign: int) -> None:
    assert one_sided_p(None, math.inf, sign) == 1
    assert one_sided_p(difference(5.0), math.inf, sign) == 1, "no p-value"
    assert one_sided_p(welch_difference([5.0, 6.0], [1.0, 2.0]), math.inf, sign) == 1, (
        "too few values"
    )


def test_without_spread_a_difference_is_certain_in_its_direction_only() -> None:
    certain = welch_difference([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])
    assert certain.error == 0
    assert (one_sided_p(certain, 9), one_sided_p(certain, 9, -1)) == (0, 1)
    none = welch_difference([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    assert one_sided_p(none, 9) == one_sided_p(none, 9, -1) == 0.5


# -- at least u of D -----------------------------------------------------------------------------


def fisher(p: Sequence[float]) -> float:
    if 0 in p:
        return 0.0
    return float(stats.chi2.sf(-2 * sum(math.log(each) for each in p), 2 * len(p)))


def bonferroni(p: Sequence[float]) -> float:
    return min(1.0, len(p) * min(p))


@pytest.mark.parametrize("independent", [True, False])
@given(p=p_values)
def test_the_p_value_is_the_worst_of_all_data_sets_that_may_have_no_effect(
    p: list[float], independent: bool
) -> None:
    """Fewer than u effects: some D - u + 1 data sets have none, whichever these are."""
    combine = fisher if independent else bonferroni
    expected, worst = [], 0.0
    for u in range(1, len(p) + 1):
        worst = max(worst, *map(combine, itertools.combinations(p, len(p) - u + 1)), 0.0)
        expected.append(worst)
    found = at_least(p, independent)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert found == sorted(found)
    assert at_least(p[::-1], independent) == found


def test_fishers_combination_is_scipys() -> None:
    p = [0.2, 0.01, 0.04]
    expected = [stats.combine_pvalues(sorted(p)[n:], method="fisher").pvalue for n in range(3)]
    assert at_least(p, True) == pytest.approx(expected)


@pytest.mark.parametrize("independent", [True, False])
@given(p=p_values, data=st.data())
def test_less_evidence_on_a_data_set_never_makes_a_statement_easier(
    p: list[float], independent: bool, data: st.DataObject
) -> None:
    weaker = [data.draw(st.floats(each, 1)) for each in p]
    for one, other in zip(at_least(p, independent), at_least(weaker, independent), strict=True):
        assert one <= other * (1 + 1e-9)


def test_a_data_set_that_decides_nothing_is_no_reason_for_a_statement() -> None:
    assert at_least([0.001, 0.001, 1.0], True)[2] == 1
    assert at_least([1.0, 1.0], True) == at_least([1.0, 1.0], False) == [1, 1]
    assert at_least([0.0, 0.0, 1.0], True) == at_least([0.0, 0.0, 1.0], False) == [0, 0, 1]


# -- all pairs, in both directions ---------------------------------------------------------------

Sides = tuple[list[Any], list[Any]]


def rejected(pairs: Sequence[Sides], level: Fraction) -> set[tuple[int, int, int]]:
    """The graphical procedure at one level, with the weight of each statement written down.

    Of each direction, one statement can be tested at a time. The order of rejections is no matter,
    so the last one that can be rejected is.
    """
    weights = {
        (pair, side, 0): Fraction(1, 2 * len(pairs))
        for pair in range(len(pairs))
        for side in (0, 1)
    }
    shown: set[tuple[int, int, int]] = set()
    while True:
        ready = [
            (pair, side, u)
            for (pair, side, u), weight in weights.items()
            if pairs[pair][side][u] <= level * weight
        ]
        if not ready:
            return shown
        pair, side, u = ready[-1]
        shown.add((pair, side, u))
        own = weights.pop((pair, side, u))
        if u + 1 < len(pairs[pair][side]):
            weights[pair, side, u + 1] = own
            continue
        # All data sets: the pair is decided, and its whole level goes to the others.
        released = own + sum(weights.pop(key) for key in [*weights] if key[0] == pair)
        others = {key[0] for key in weights}
        for key in weights:
            weights[key] += released / len(others) / 2
    raise AssertionError


@st.composite
def suites(draw: st.DrawFn) -> list[Sides]:
    """One-sided p-values of up to four pairs on up to three data sets, as exact numbers."""
    count = draw(st.integers(1, 3))
    values = st.one_of(st.integers(0, 400), st.integers(0, 8), st.none())
    found = []
    for _ in range(draw(st.integers(1, 4))):
        p = [draw(values) for _ in range(count)]
        above: list[Any] = [Fraction(1) if each is None else Fraction(each, 400) for each in p]
        below: list[Any] = [Fraction(1) if each is None else 1 - Fraction(each, 400) for each in p]
        found.append((at_least(above, False), at_least(below, False)))
    return found


def levels(pairs: Sequence[Sides]) -> Iterator[Fraction]:
    """All levels below a half at which something may change, and levels between them."""
    values = {p for sides in pairs for side in sides for p in side}
    exact = sorted(
        {Fraction(2 * k * p) for p in values for k in range(1, len(pairs) + 1)} | {Fraction(0)}
    )
    between = [(one + other) / 2 for one, other in itertools.pairwise(exact)]
    return (level for level in (*exact, *between) if level < Fraction(1, 2))


@given(pairs=suites())
def test_adjusted_p_values_are_the_levels_of_the_graphical_procedure(pairs: list[Sides]) -> None:
    adjusted = adjust_pairs(pairs)
    for level in levels(pairs):
        found = {
            (pair, side, u)
            for pair, sides in enumerate(adjusted)
            for side, p in enumerate(sides)
            for u, each in enumerate(p)
            if each <= level
        }
        assert found == rejected(pairs, level)


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_of_one_data_set_it_is_holms_correction_of_two_sided_p_values(p: list[float]) -> None:
    adjusted = adjust_pairs([([each], [1 - each]) for each in p])
    expected = holm([2 * min(each, 1 - each) for each in p])
    assert [min(above[0], below[0]) for above, below in adjusted] == pytest.approx(expected)
    for each, ((above,), (below,)) in zip(p, adjusted, strict=True):
        assert max(above, below) == 1
        assert above <= below if each < 0.5 else below <= above


def test_a_pair_passes_its_level_on_only_when_all_data_sets_are_shown() -> None:
    """Holm's own order would test the second pair at the whole level in both suites."""
    none = [1.0, 1.0]
    second = ([0.02, 1.0], none)
    assert adjust_pairs([([0.001, 0.9], none), second])[1][0][0] == pytest.approx(0.08)
    assert adjust_pairs([([0.001, 0.002], none), second])[1][0][0] == pytest.approx(0.04)
    assert adjust_pairs([([0.001, 0.002], none), second])[0] == ((0.004, 0.008), (1, 1))


def test_the_largest_number_that_is_shown() -> None:
    mean = Centred(0.0, None)
    above, below = (0.001, 0.049, 0.051), (0.2, 1.0, 1.0)
    pair = SuiteComparison("a", "b", (None, None, None), above, below, 1, mean, mean)
    assert (pair.num_above, pair.num_below) == (2, 0)


def _below_level(p: Sequence[float]) -> int:
    return sum(each < LEVEL for each in p)


@pytest.mark.parametrize("independent", [True, False])
def test_a_family_of_statements_errs_in_at_most_one_of_twenty_suites(independent: bool) -> None:
    """Three methods on three data sets; the first is better, on one of the data sets only.

    Every error of a suite counts: too many data sets, or the wrong direction, for any pair.
    """
    draw, count = np.random.default_rng(11), 4000
    noise = draw.normal(size=(count, 3, 3 if independent else 1))  # methods x data sets
    scores = np.broadcast_to(noise, (count, 3, 3)).copy()
    scores[:, 0, 0] += 9
    pairs, true = ((0, 1), (0, 2), (1, 2)), ((1, 0), (1, 0), (0, 0))

    def errs(claims: Sequence[Sequence[int]]) -> bool:
        found = zip(itertools.chain(*claims), itertools.chain(*true), strict=True)
        return any(claimed > there for claimed, there in found)

    errors, naive, shown = 0, 0, 0
    for suite in scores:
        z = [(suite[a] - suite[b]) / math.sqrt(2) for a, b in pairs]
        p = [[stats.norm.sf(sign * each).tolist() for sign in (1, -1)] for each in z]
        sides = [(at_least(above, independent), at_least(below, independent)) for above, below in p]
        claims = [[_below_level(side) for side in pair] for pair in adjust_pairs(sides)]
        errors += errs(claims)
        shown += claims[0][0] >= 1
        naive += errs([[_below_level(side) for side in pair] for pair in p])
    most = LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / count)  # 5.7 %
    assert errors / count <= most
    assert naive / count > 2 * LEVEL, "as counting significant data sets does"
    assert shown / count > 0.99, "and the effect that is there is found"


# -- means over data sets ------------------------------------------------------------------------


def test_the_mean_of_independent_data_sets_has_satterthwaites_interval() -> None:
    errors, degrees, means = [0.5, 2.0, 1.0], [4.0, 9.5, math.inf], [1.0, 2.0, 6.0]
    found = mean_over_data_sets([*map(difference, means, errors, degrees)], independent=True)
    assert found.mean == pytest.approx(3)
    total = 0.25 + 4 + 1
    freedom = total**2 / (0.25**2 / 4 + 4**2 / 9.5)
    expected = stats.t.ppf(0.975, freedom) * math.sqrt(total) / 3
    assert found.half_width == pytest.approx(expected)


def test_the_mean_of_two_data_sets_has_welchs_interval() -> None:
    one, other = [0.3, 0.1, 0.5, 0.2], [-0.2, 0.9, 0.4]
    negative = [-value for value in other]
    parts = []
    for values in (one, other):
        error = float(stats.sem(values))
        parts.append(difference(float(np.mean(values)), error, len(values) - 1))
    found = mean_over_data_sets(parts, independent=True)
    welch = welch_difference(one, negative)
    assert welch.half_width is not None
    assert found.mean == pytest.approx(welch.mean / 2)
    assert found.half_width == pytest.approx(welch.half_width / 2)


@pytest.mark.parametrize("shared", [0.0, 1.0], ids=["own draws", "shared draws"])
def test_the_interval_of_a_mean_holds(shared: float) -> None:
    """Data sets whose errors are independent, or all the same but for their size."""
    draw, count, n, spreads = np.random.default_rng(4), 4000, 8, [0.2, 1.0, 2.0]
    own = draw.normal(size=(count, 3, n))
    values = np.where(shared, own[:, :1], own) * np.array(spreads)[None, :, None]
    means, errors = values.mean(-1), values.std(-1, ddof=1) / math.sqrt(n)
    covered = 0
    for mean, error in zip(means.tolist(), errors.tolist(), strict=True):
        parts = [difference(m, e, n - 1) for m, e in zip(mean, error, strict=True)]
        found = mean_over_data_sets(parts, independent=not shared)
        assert found.half_width is not None
        covered += abs(found.mean) <= found.half_width
    assert 0.94 <= covered / count <= 0.96


def test_any_dependence_widens_the_interval() -> None:
    parts = [difference(1, 0.5, 4), difference(2, 2, 9)]
    wide = mean_over_data_sets(parts, independent=False)
    assert wide.half_width == pytest.approx(stats.t.ppf(0.975, 4) * 2.5 / 2)
    narrow = mean_over_data_sets(parts, independent=True)
    assert narrow.half_width is not None
    assert wide.half_width is not None
    assert narrow.half_width < wide.half_width
    assert narrow.mean == wide.mean == 1.5


@pytest.mark.parametrize("independent", [True, False])
def test_a_mean_of_what_is_not_known(independent: bool) -> None:
    missing = mean_over_data_sets([difference(1), None], independent)
    assert math.isnan(missing.mean)
    assert missing.half_width is None
    assert mean_over_data_sets([difference(1), difference(3, None)], independent) == Centred(
        2, None
    )
    certain = mean_over_data_sets([difference(1, 0), difference(3, 0)], independent)
    assert certain == Centred(2, 0)
    half = mean_over_data_sets([difference(1, 0, 3), difference(3, 1, 8)], independent)
    degrees = 8 if independent else 3  # without an error, degrees tell nothing
    assert half.half_width == pytest.approx(stats.t.ppf(0.975, degrees) / 2)


# -- other data sets -----------------------------------------------------------------------------


def test_a_few_data_sets_say_nothing_about_others() -> None:
    assert MIN_DATA_SETS == 6
    means = [0.5, 1.0, -0.25, 2.0, 0.75, 1.5]
    known = [difference(mean) for mean in means]
    assert on_other_data_sets(known[:5]) is None
    assert on_other_data_sets([*known, None]) is None, "one that is not known cannot be left out"
    found = on_other_data_sets(known)
    assert found is not None
    assert found.mean == pytest.approx(np.mean(means))
    low, high = stats.t.interval(0.95, 5, np.mean(means), stats.sem(means))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    # However well each of them is known.
    assert on_other_data_sets([difference(mean, None) for mean in means]) == found
