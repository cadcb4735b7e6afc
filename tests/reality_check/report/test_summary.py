"""What all sections have in common: whose parameters are reproduced, and the test of a pair."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from scipy import stats

from reality_check.config.metrics import PRIMARY
from reality_check.report.summary import Summary, winner
from reality_check.results import (
    ExperimentResults,
    Folder,
    MethodResults,
    ResultRow,
    TrialRecord,
)
from reality_check.statistics import Difference, estimate_difference


def test_the_winner_is_the_one_that_was_recorded(results: ExperimentResults) -> None:
    method = dataclasses.replace(results.methods[0], retrained=((0, 3),))
    best = winner(method)
    assert best is not None
    assert best.trial_index == 3, "though trial 5 has a higher value"


def test_before_the_search_is_complete_the_best_so_far_stands_for_it() -> None:
    values = [0.1, 0.3, 0.3, 0.9, None]
    trials = [
        TrialRecord(trial_index, "complete" if value else "running", value=value)
        for trial_index, value in enumerate(values)
    ]
    trials[3] = dataclasses.replace(trials[3], diverged="the loss became nan")
    best = winner(MethodResults("m", "L", search=tuple(trials)))
    assert best is not None
    assert best.trial_index == 1, "the earlier of two equal ones"
    assert winner(MethodResults("m", "L", search=tuple(trials[3:]))) is None


# -- the test of a pair --------------------------------------------------------------------------


def measured(search: dict[str, Any], of_b: dict[str, Any] | None = None) -> ExperimentResults:
    """Two methods with sixteen units that share their luck; b is a little worse."""
    draw = random.Random(0)
    units = range(16)
    levels = [0.1 + 0.02 * draw.random() for _ in units]
    methods, rows = [], []
    for name, shift, changes in (("a", 0.0, {}), ("b", -0.001, {**(of_b or {})})):
        values = [level + shift + draw.gauss(0, 0.0001) for level in levels]
        repeated = "repeats" in search
        trials = tuple(
            TrialRecord(
                0 if repeated else k, "complete", value=levels[k], search=k if repeated else 0
            )
            for k in units
        )
        trials = trials[: changes.pop("units", None)]
        method = MethodResults(name, "L", trials, searched=("x", "y", "z"), origin="f0")
        methods.append(dataclasses.replace(method, **changes))
        rows += [
            ResultRow("e", name, "ensemble", k, PRIMARY, values[k], t.search, t.trial_index)
            for k, t in enumerate(trials)
        ]
    config = {"protocol": {"search": search}, "methods": [{"name": "a"}, {"name": "b"}]}
    folders = [Folder(f"f{n}", "", "e", (), seed, True) for n, seed in enumerate((0, 0, 1))]
    results = ExperimentResults("e", "p", "mlrc", True, tuple(methods), tuple(rows), config=config)
    return dataclasses.replace(results, folders=tuple(folders))


def pair(results: ExperimentResults) -> tuple[Difference, Difference]:
    """The difference that is shown, and Welch's."""
    summary = Summary(results)
    (found,) = summary.comparisons("ensemble")
    estimates = summary.estimates("ensemble")
    return found.difference, estimate_difference(estimates[found.better], estimates[found.other])


SUBSETS = {"trials": 16, "budget": 5}
SEARCHES = {"trials": 4, "repeats": 16}


@pytest.mark.parametrize("search", [SUBSETS, SEARCHES])
def test_units_that_share_luck_are_compared_with_each_other(search: dict[str, Any]) -> None:
    shown, welch = pair(measured(search))
    assert shown.mean == pytest.approx(0.001, rel=0.3)
    assert shown.p_value is not None
    assert shown.p_value < 0.002
    assert welch.p_value is not None
    assert welch.p_value > 0.05
    if search is SEARCHES:
        values = [
            [row.value for row in measured(search).rows if row.method == name] for name in "ab"
        ]
        assert shown.p_value == pytest.approx(stats.ttest_rel(*values).pvalue)


@pytest.mark.parametrize(
    ("search", "of_b", "joint"),
    [
        (SUBSETS, {"has_own_draws": True}, False),
        (SUBSETS, {"searched": ("x", "z")}, True),
        (SUBSETS, {"searched": ("x", "b", "c")}, True),
        (SUBSETS, {"searched": ("a", "b", "c")}, False),
        (SEARCHES | {"sampler": "random"}, {"searched": ("x", "b", "c")}, False),
        (SUBSETS, {"origin": "f1"}, True),
        (SUBSETS, {"origin": "f2"}, False),
        (SUBSETS, {"units": 15}, False),
        (SEARCHES | {"sampler": "random"}, {}, True),
        (SEARCHES | {"sampler": "tpe", "startup_trials": 3}, {}, True),
        (SEARCHES | {"sampler": "tpe", "startup_trials": 2}, {}, False),
        (SEARCHES, {"has_own_draws": True}, False),
        (SEARCHES, {"origin": "f2"}, False),
        ({"trials": 4}, {}, False),
    ],
)
def test_what_was_recorded_decides_on_the_test(
    search: dict[str, Any], of_b: dict[str, Any], joint: bool
) -> None:
    shown, welch = pair(measured(search, of_b))
    assert (shown == welch) == (not joint)
