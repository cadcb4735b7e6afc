"""Folders with other seeds: further searches of one method where all else is the same."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reality_check.config.metrics import PRIMARY
from reality_check.report.combine import Source, combine
from reality_check.report.summary import Evidence, Summary
from reality_check.results import (
    ExperimentResults,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)

CONFIG: dict[str, Any] = {
    "name": "one",
    "seed": 0,
    "protocol": {"name": "p", "selects_on": "validation", "search": {"trials": 4, "repeats": 2}},
    "methods": [{"name": "a", "loss": "mine.Loss", "arguments": {"margin": 0.1}}],
    "code": {"mine.Loss": "l1"},
}


def folder(seed: int, **changes: Any) -> ExperimentResults:
    """Two searches of a method, each with two reproductions of its trial 3."""
    config = copy.deepcopy(CONFIG) | {"seed": seed}
    config |= changes
    trials = tuple(
        TrialRecord(index, "complete", value=0.1 * index, search=search)
        for search in range(2)
        for index in range(4)
    )
    runs = tuple(TrialRecord(run, "complete", search=run // 2, retrained=3) for run in range(4))
    rows = tuple(
        ResultRow("one", "a", "ensemble", run, PRIMARY, (10 * seed + run) / 100, run // 2, 3)
        for run in range(4)
    )

    def load(method: str, category: str, reproduction: int) -> NDArray[np.float64]:
        return np.full((3, 6), (10 * seed + reproduction) / 100)

    queries = QueryScores(np.arange(6) // 2, ("x", "y", "z"), load)
    method = MethodResults("a", "L", trials, runs, retrained=((0, 3), (1, 3)))
    results = ExperimentResults("one", "p", "mlrc", True, (method,), rows, config=config)
    return dataclasses.replace(results, queries=queries)


def combined(*folders: ExperimentResults) -> ExperimentResults:
    sources = [Source(f"f{n}", Path(f"runs/f{n}"), results) for n, results in enumerate(folders)]
    return combine(sources)


def test_other_seeds_are_further_searches() -> None:
    results = combined(folder(0), folder(1))
    assert [method.name for method in results.methods] == ["a"]
    summary = Summary(results)
    assert summary.evidence is Evidence.SEARCHES
    assert [*summary.repeats["ensemble", PRIMARY, "a"]] == [0, 1, 2, 3]
    means = summary.samples("ensemble", PRIMARY)["a"]
    assert means == pytest.approx((0.005, 0.025, 0.105, 0.125))
    (method,) = results.methods
    assert {trial.search for trial in method.search} == {0, 1, 2, 3}
    assert method.retrained == ((0, 3), (1, 3), (2, 3), (3, 3))
    assert [run.trial_index for run in method.reproductions] == list(range(8))
    assert results.queries is not None
    loaded = [results.queries.load("a", "ensemble", run) for run in range(8)]
    values = [float(scores[0, 0]) for scores in loaded if scores is not None]
    assert values == pytest.approx([0, 0.01, 0.02, 0.03, 0.10, 0.11, 0.12, 0.13])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"methods": [{"name": "a", "loss": "mine.Loss", "arguments": {"margin": 0.2}}]}, "margin"),
        ({"code": {"mine.Loss": "l2"}}, "code.mine.Loss"),
    ],
)
def test_searches_of_methods_that_differ_are_kept_apart_and_the_keys_named(
    changes: dict[str, Any], key: str
) -> None:
    results = combined(folder(0), folder(1, **changes))
    assert [method.name for method in results.methods] == ["a (f0)", "a (f1)"]
    (text,) = [d.text for d in results.deviations if d.topic == "searches not pooled"]
    assert key in text


def test_the_same_seed_twice_is_no_further_search() -> None:
    results = combined(folder(0), folder(0))
    assert [method.name for method in results.methods] == ["a (f0)", "a (f1)"]
