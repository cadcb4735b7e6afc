"""The bootstrap over classes against loops, formulas and simulations of its coverage."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from reality_check.statistics import (
    class_totals,
    design_effect,
    percentile_interval,
    resampled_means,
    t_interval,
    with_noise,
)

Array = NDArray[np.float64]


def test_totals_are_sums_by_class_in_any_order() -> None:
    values = np.array([[1.0, 2.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0]])
    totals, counts = class_totals(values, np.array([7, 3, 7, 3]))
    assert totals.tolist() == [[10.0, 5.0], [2.0, 2.0]]
    assert counts.tolist() == [2, 2]


def by_hand(totals: Array, counts: Array, draws: int, seed: int) -> Array:
    """Class by class, with the same random numbers."""
    generator, classes = np.random.default_rng(seed), len(counts)
    drawn = generator.integers(classes, size=(draws, classes))
    return np.array(
        [
            [sum(row[c] for c in some) / sum(counts[c] for c in some) for row in totals]
            for some in drawn
        ]
    )


def test_draws_are_means_over_the_queries_of_the_drawn_classes() -> None:
    totals, counts = np.array([[1.0, 2.0, 6.0], [0.0, 4.0, 1.0]]), np.array([2, 3, 10])
    found = resampled_means(totals, counts, draws=50, seed=3)
    assert found == pytest.approx(by_hand(totals, counts, 50, 3))


def test_memory_is_bounded_without_changing_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    totals, counts = np.random.default_rng(0).random((2, 9)), np.arange(1, 10)
    whole = resampled_means(totals, counts, draws=40)
    monkeypatch.setattr("reality_check.statistics._bootstrap._MAX_DRAWN_INDICES", 20)
    assert resampled_means(totals, counts, draws=40) == pytest.approx(whole)


def test_the_percentiles_of_normal_draws_are_the_t_interval() -> None:
    values = np.random.default_rng(3).normal(0, 1, 8)
    interval = t_interval(values.tolist())
    # What drawing 8 normal values with replacement tends to: the variance with 1 / n.
    draws = values.mean() + values.std() / math.sqrt(8) * np.random.default_rng(4).normal(
        size=400_000
    )
    found = percentile_interval(draws, float(values.mean()), 8)
    assert found.low == pytest.approx(interval.low, abs=0.01)
    assert found.high == pytest.approx(interval.high, abs=0.01)
    assert found.value == pytest.approx(interval.mean)


def hierarchical(draw: np.random.Generator, classes: int) -> tuple[Array, NDArray[np.int64]]:
    """Scores of 20 queries of each class around 0; classes differ as much as queries do."""
    labels = np.repeat(np.arange(classes), 20)
    return draw.normal(0, 1, classes)[labels] + draw.normal(0, 1, len(labels)), labels


@pytest.mark.parametrize("classes", [8, 30])
def test_intervals_over_classes_cover_and_those_over_queries_do_not(classes: int) -> None:
    draw = np.random.default_rng(5)
    by_class = by_query = 0
    for _ in range(300):
        scores, labels = hierarchical(draw, classes)
        totals, counts = class_totals(scores[None], labels)
        single = (scores[None], np.ones(len(scores), dtype=np.int64))
        for units, data, count in (
            (classes, (totals, counts), 1500),
            (len(scores), single, 200),
        ):
            draws = resampled_means(*data, count, int(draw.integers(2**31)))[:, 0]
            found = percentile_interval(draws, float(scores.mean()), units)
            covered = found.low <= 0 <= found.high
            by_class += covered and units == classes
            by_query += covered and units != classes
    assert 0.92 <= by_class / 300 <= 0.98
    assert by_query / 300 < 0.75


def test_many_classes_leave_the_t_interval_over_reproductions() -> None:
    values = [0.30, 0.31, 0.29, 0.305]
    interval = t_interval(values)
    draws = with_noise(np.full(200_000, interval.mean), float(np.std(values, ddof=1)) / 2, 3)
    found = percentile_interval(draws, interval.mean, 10**6)
    assert found.low == pytest.approx(interval.low, abs=2e-4)
    assert found.high == pytest.approx(interval.high, abs=2e-4)


def test_the_design_effect_is_a_ratio_of_bootstrap_variances() -> None:
    scores, labels = hierarchical(np.random.default_rng(7), 40)
    totals, counts = class_totals(np.stack([scores, scores**2]), labels)
    found = design_effect(totals[0], counts, totals[1])
    by_class = resampled_means(totals[:1], counts, 20_000)[:, 0].var()
    by_query = resampled_means(scores[None], np.ones(800, dtype=np.int64), 5000)[:, 0].var()
    assert found == pytest.approx(by_class / by_query * 40 / 39, rel=0.06)
    shuffles = [np.random.default_rng(seed).permutation(scores) for seed in range(100)]
    without = [class_totals(np.stack([x, x**2]), labels) for x in shuffles]
    effects = [design_effect(totals[0], counts, totals[1]) for totals, counts in without]
    assert np.mean(effects) == pytest.approx(1, abs=0.07)
    assert math.isnan(design_effect(np.ones(3), np.ones(3, dtype=np.int64), np.ones(3)))


def test_an_error_of_infinite_degrees_is_normal() -> None:
    normal = with_noise(np.full(200_000, 0.3), 0.01, math.inf)
    assert normal.std() == pytest.approx(0.01, rel=0.01)


def test_the_memory_of_drawing_does_not_grow_with_the_number_of_draws() -> None:
    totals, counts = np.ones((3, 5000)), np.full(5000, 10)
    peaks = []
    for draws in (500, 4000):
        tracemalloc.start()
        resampled_means(totals, counts, draws)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 1_000_000, peaks
    assert peaks[1] < 60_000_000
