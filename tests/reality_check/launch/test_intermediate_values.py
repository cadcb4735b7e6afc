"""What Optuna's tools see of the course of a trial."""

from __future__ import annotations

import pytest

from reality_check.launch.trial_runner import _means_by_step
from reality_check.training.fold import FoldResult


def fold(value: float, curve: dict[int, float]) -> FoldResult:
    rows = tuple({"step": step, "map": score} for step, score in curve.items())
    return FoldResult(value, 0, 0, 0, 0.0, rows)


def test_a_fold_that_has_ended_counts_with_what_it_keeps() -> None:
    short = fold(0.4, {-1: 0.9, 0: 0.1, 2: 0.4, 4: 0.2})
    long = fold(0.6, {-1: 0.9, 0: 0.1, 2: 0.2, 4: 0.3, 6: 0.6})
    means = _means_by_step([short, long], "map")
    assert means == pytest.approx({0: 0.1, 2: 0.3, 4: 0.25, 6: 0.5})


def test_a_fold_that_is_not_evaluated_then_counts_with_its_last() -> None:
    means = _means_by_step(
        [fold(0.4, {0: 0.1, 4: 0.4}), fold(0.6, {0: 0.3, 3: 0.5, 4: 0.6})], "map"
    )
    assert means == pytest.approx({0: 0.2, 3: 0.3, 4: 0.5})


def test_of_many_epochs_some_are_stored_the_first_and_the_last_among_them() -> None:
    means = _means_by_step([fold(0.99, {step: step / 100 for step in range(100)})], "map")
    assert len(means) <= 21
    assert list(means)[:2] == [0, 5]
    assert means[99] == 0.99
