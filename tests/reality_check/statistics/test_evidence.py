"""Which samples show that their interval rests on little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from reality_check.statistics import Weakness, all_subsets, weak_evidence

DRAW = np.random.default_rng(0)
#: Validation scores of fifty trials of one kind, the best last, and by how much a test differs.
SOUND = np.sort(0.25 + 0.02 * DRAW.random(50))
NOISE = DRAW.normal(0, 0.004, 50)


def found(
    validation: Sequence[float], tests: Sequence[float], best: int = 15, budget: int = 10
) -> Weakness | None:
    """What is said of a search whose best trials are retrained."""
    kept = {int(t): float(tests[t]) for t in np.argsort(validation)[-best:]}
    return weak_evidence(validation, kept, budget, all_subsets(validation, kept, budget))


def with_some(scores: np.ndarray, start: int, end: int, change: float) -> np.ndarray:
    """The same scores with some of them changed."""
    return np.concatenate([scores[:start], scores[start:end] + change, scores[end:]])


def test_of_a_sound_sample_nothing_is_said() -> None:
    assert found(SOUND, SOUND + NOISE) is None
    few = SOUND[::3][:16]
    assert found(few, few + NOISE[:16], best=16, budget=5) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_trials_far_above_the_others(count: int) -> None:
    validation = with_some(SOUND, 50 - count, 50, 0.05)
    assert found(validation, validation + NOISE) == Weakness("rare", count, 50)


def test_many_good_trials_are_no_rarity() -> None:
    validation = with_some(SOUND, 20, 50, 0.01)
    assert found(validation, validation + NOISE) is None


def test_searches_that_find_failures_only() -> None:
    validation = with_some(SOUND, 0, 33, -0.22)
    assert found(validation, validation + NOISE) == Weakness("failures", 33, 50)
    assert found(with_some(SOUND, 0, 5, -0.22), SOUND + NOISE) is None, "no search of ten has five"


@pytest.mark.parametrize("lost", [1, 4])
def test_retrainings_far_below_the_others(lost: int) -> None:
    assert found(SOUND, with_some(SOUND + NOISE, 50 - lost, 50, -0.2)) == Weakness(
        "apart", lost, 13
    )


def test_test_scores_that_hardly_differ() -> None:
    assert found(SOUND, (SOUND + NOISE).round(2)) == Weakness("coarse", 2, 13)
    assert found(SOUND, np.full(50, 0.25)) == Weakness("coarse", 1, 13)


def test_too_few_retrained_trials() -> None:
    assert found(SOUND, SOUND, best=8) == Weakness("untested", 8, 50)
    tied = with_some(SOUND, 20, 50, 1.0)
    tied[20:] = 1.0
    assert found(tied, tied + NOISE) is None, "fifteen of thirty that are tied"


def test_neither_the_unit_nor_the_order_of_trials_matters() -> None:
    validation = with_some(SOUND, 48, 50, 0.05)
    tests, order = validation + NOISE, DRAW.permutation(50)
    expected = found(validation, tests)
    assert expected is not None
    assert found(100 * validation[order], 100 * tests[order]) == expected
