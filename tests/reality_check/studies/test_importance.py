"""Importance of hyper-parameters: on functions whose shares are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from reality_check.config.values import Choices, Range, Searched
from reality_check.results import TrialRecord
from reality_check.studies.importance import FEWEST, parameter_importance

SPACE: dict[str, Searched] = {
    "rate": Range(low=1e-6, high=1.0, log=True),
    "margin": Range(low=0.0, high=1.0),
    "bins": Range(low=2, high=32, integer=True),
    "mode": Choices(choices=["soft", "hard", None]),
}


def trials(score: Callable[[dict[str, Any]], float], count: int) -> list[TrialRecord]:
    draw = random.Random(0)
    made = []
    for trial_index in range(count):
        params = {
            "rate": 10 ** draw.uniform(-6, 0),
            "margin": draw.random(),
            "bins": draw.randint(2, 32),
            "mode": draw.choice(["soft", "hard", None]),
        }
        made.append(TrialRecord(trial_index, "complete", value=score(params), params=params))
    return made


def test_what_decides_the_score_has_most_of_the_variance_also_on_a_logarithmic_scale() -> None:
    # A bump at 1e-4: on a linear scale nearly all of the range would lie beyond it.
    importance = parameter_importance(
        SPACE, trials(lambda p: 0.4 - 0.05 * (math.log10(p["rate"]) + 4) ** 2, 40)
    )
    assert importance is not None
    assert next(iter(importance.shares)) == "rate"
    assert importance.shares["rate"] > 0.8
    assert all(
        share < importance.noise for name, share in importance.shares.items() if name != "rate"
    )
    assert importance.trials == 40


def test_choices_and_whole_numbers_can_matter_too() -> None:
    importance = parameter_importance(
        SPACE, trials(lambda p: 0.2 * (p["mode"] == "soft") + 0.01 * p["bins"], 60)
    )
    assert importance is not None
    assert set(list(importance.shares)[:2]) == {"mode", "bins"}


def test_noise_is_below_its_own_yardstick_or_near() -> None:
    draw = random.Random(1)
    importance = parameter_importance(SPACE, trials(lambda p: draw.random(), 30))
    assert importance is not None
    assert max(importance.shares.values()) < 2 * importance.noise
    assert 0.1 < importance.noise < 0.8


def test_diverged_and_unfinished_trials_are_left_out() -> None:
    sound = trials(lambda p: p["margin"], 25)
    lost = TrialRecord(25, "complete", value=0.0, diverged="NaN")
    running = TrialRecord(26, "running")
    importance = parameter_importance(SPACE, [*sound, lost, running])
    assert importance is not None
    assert importance.trials == 25
    assert importance == parameter_importance(SPACE, sound)


@pytest.mark.parametrize(
    ("space", "count"), [(SPACE, FEWEST - 1), ({"margin": SPACE["margin"]}, 40), ({}, 40)]
)
def test_too_little_to_tell(space: dict[str, Searched], count: int) -> None:
    assert parameter_importance(space, trials(lambda p: p["margin"], count)) is None
    assert parameter_importance(SPACE, trials(lambda p: 0.3, 30)) is None
