"""The calibration on the bank that is shipped measures what it says, and finds what it must."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.imports import import_file
from support.paths import ROOT

from reality_check.statistics import (
    all_subsets,
    allow_for_skew,
    estimate_difference,
    over_searches,
    skew_allowance,
)

calibration = import_file(ROOT / "benchmarks" / "calibration.py")
CAMPAIGNS = 2000


@pytest.fixture(scope="module")
def bank() -> list[Any]:
    return read("caltech101_lite0")


def read(name: str) -> list[Any]:
    methods: list[Any] = calibration.read(ROOT / "benchmarks" / "banks" / f"{name}.csv")
    return methods


def test_theta_is_the_mean_of_the_winners_of_searches(bank: list[Any]) -> None:
    generator = np.random.default_rng(0)
    for method, budget in itertools.product(bank, (1, 10, 50)):
        winners = method.ranks((100_000, budget), generator).max(-1)
        scores = method.worth(winners, generator) + method.retraining(winners, generator)
        assert scores.mean() == pytest.approx(method.theta(budget), abs=0.02)


def test_a_campaign_is_judged_as_the_report_judges(bank: list[Any]) -> None:
    """The same numbers for the same scores: here the estimates of a campaign, one by one."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(2, 5, 2))
    one, other = (over_searches(runs.tolist()) for runs in values)
    campaigns = [
        calibration.Campaigns(*(np.array([x]) for x in (e.mean, e.error, e.degrees)))
        for e in (one, other)
    ]
    p_values, gaps = campaigns[0].p(campaigns[1])
    expected = estimate_difference(one, other)
    assert p_values[0] == pytest.approx(expected.p_value)
    assert gaps[0] == pytest.approx(expected.mean)
    shown = allow_for_skew(one, 10)
    assert shown.low is not None
    assert campaigns[0].covers(shown.low + 1e-9, skew_allowance(10)) == 1
    assert campaigns[0].covers(shown.low - 1e-9, skew_allowance(10)) == 0
    trials = calibration.subsets(20, 8, 5).draw(bank[0], 3, np.random.default_rng(1))
    again = np.random.default_rng(1)
    ranks = np.sort(bank[0].ranks((3, 20), again), -1)
    scores = bank[0].worth(ranks, again) + bank[0].retraining(ranks, again)
    for row in range(3):
        kept = {trial: float(scores[row, trial]) for trial in range(12, 20)}
        found = all_subsets(ranks[row].tolist(), kept, 5)
        assert trials.mean[row] == pytest.approx(found.mean)
        assert trials.error[row] == pytest.approx(found.error)
        assert trials.degrees[row] == pytest.approx(found.degrees)


def verdicts(family: list[Any]) -> tuple[float, float]:
    p_values = np.array([a.p(b)[0] for a, b in itertools.combinations(family, 2)])
    return float((p_values < 0.05).mean()), float((p_values.min(0) < 0.05 / 6).mean())


def test_false_verdicts_coverage_and_power_are_as_the_page_says(bank: list[Any]) -> None:
    published, *_ = calibration.DIVISIONS
    *_, subsets = calibration.DIVISIONS
    fives = calibration.repeated(5, 10, 2)
    drawn = {
        kind.name: calibration.draw_families(bank, kind, CAMPAIGNS, 0)
        for kind in (published, fives, subsets)
    }
    for method in bank:
        assert verdicts(drawn[published.name][method.name])[0] > 0.25
        for kind in (fives, subsets):
            pair, any_of_six = verdicts(drawn[kind.name][method.name])
            assert pair <= 0.06
            assert any_of_six <= 0.06
    found = {
        kind.name: np.mean(
            [
                calibration.told(drawn[kind.name], a, b, kind.budget)[1]
                for a, b in itertools.combinations(bank, 2)
            ]
        )
        for kind in (fives, subsets)
    }
    assert found[subsets.name] >= 1.4 * found[fives.name]


@pytest.mark.parametrize("name", ["caltech101_lite0", "omniglot_lite0"])
@pytest.mark.parametrize("kind", calibration.DIVISIONS[2:], ids=lambda kind: kind.name)
def test_intervals_hold_as_often_as_the_page_says(kind: Any, name: str) -> None:
    methods = read(name)
    drawn = calibration.draw_families(methods, kind, 4 * CAMPAIGNS, 0)
    shares = [
        np.mean([campaigns.covers(method.theta(kind.budget)) for campaigns in drawn[method.name]])
        for method in methods
    ]
    assert min(shares) >= 0.925
    assert max(shares) <= 0.975
