"""Expected best of fewer trials, against every subset and every sequence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reality_check.statistics import (
    expected_best,
    expected_best_band,
)

few = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(few)
def test_without_replacement_it_is_the_mean_over_all_subsets(values: list[float]) -> None:
    found = expected_best(values)
    for n in range(1, len(values) + 1):
        subsets = list(itertools.combinations(values, n))
        assert found[n - 1] == pytest.approx(np.mean([max(s) for s in subsets]), abs=1e-9)


def test_many_trials_do_not_overflow() -> None:
    values = np.linspace(0, 1, 400)
    found = expected_best(values.tolist())
    assert np.isfinite(found).all()
    # The best of n of 400 equally spaced values: (n / (n + 1)) (N + 1) - 1 steps of 1 / (N - 1).
    expected = [(n / (n + 1) * 401 - 1) / 399 for n in range(1, 401)]
    assert found == pytest.approx(expected)


def test_the_estimate_is_unbiased_and_the_band_holds_for_all_numbers_at_once() -> None:
    draw = np.random.default_rng(0)
    truth = np.arange(1, 21) / np.arange(2, 22)  # the expected best of n uniform values
    estimates, covered = [], 0
    for _ in range(300):
        values = draw.random(20)
        estimates.append(expected_best(values))
        low, high = expected_best_band(values)
        assert (low <= estimates[-1]).all()
        assert (estimates[-1] <= high).all()
        covered += bool(((low <= truth) & (truth <= high)).all())
    assert np.mean(estimates, axis=0) == pytest.approx(truth, abs=0.012)
    assert covered / 300 >= 0.93


def test_the_band_is_that_of_the_distribution_functions() -> None:
    # Of one trial at 0.4, F(0.4) is uniform, so its 95 % band is 0.025 to 0.975: below 0.4 F is at
    # most 0.975, above it at least 0.025.
    low, high = expected_best_band([0.4])
    assert low[0] == pytest.approx(1 - (0.4 * 0.975 + 0.6), abs=0.003)
    assert high[0] == pytest.approx(1 - 0.6 * 0.025, abs=0.003)


def test_no_trials_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        expected_best([])
