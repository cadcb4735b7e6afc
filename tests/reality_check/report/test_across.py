"""Reports over several data sets."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy.special import stdtr

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.compared import compare
from reality_check.report.sections.across import headline, pair_sentence
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.writing import write_suite_report
from reality_check.results import (
    ExperimentResults,
    MethodResults,
    ResultRow,
    SuiteResults,
    TrialRecord,
)
from reality_check.statistics import at_least, estimate_difference, over_searches
from reality_check.utils.errors import UsageError

NAMES = ("a", "b", "c")
CONFIG: dict[str, Any] = {
    "protocol": {
        "name": "mlrc_5x10",
        "categories": ["ensemble"],
        "reproductions": 1,
        "search": {"kind": "repeated", "sampler": "random", "trials": 10, "repeats": 5},
    },
    "model": {"trunk": "identity"},
    "methods": [{"name": name, "loss": name.upper()} for name in NAMES],
}


def member(data_set: str, gaps: tuple[float, ...], seed: int = 0, **more: Any) -> ExperimentResults:
    """Five searches of each method; ``gaps`` are the scores above 0.5 of each method."""
    rows = [
        ResultRow(
            data_set, name, "ensemble", run, metric, 0.5 + gap + 0.01 * math.sin(run + 2 * k), run
        )
        for k, (name, gap) in enumerate(zip(NAMES, gaps, strict=True))
        for run in range(5)
        for metric in METRICS
    ]
    trials = tuple(TrialRecord(0, "complete", 0.5, search=run) for run in range(5))
    config = copy.deepcopy(CONFIG) | {"dataset": {"name": data_set}, "seed": seed}
    config |= {"code": {"dataset": f"sha256:{data_set}"}}
    methods = tuple(MethodResults(name, name.upper(), trials) for name in NAMES)
    results = ExperimentResults(
        data_set, "mlrc_5x10", "mlrc", True, methods, tuple(rows), config=config
    )
    return dataclasses.replace(results, **more)


def suite(*members: ExperimentResults) -> SuiteResults:
    return SuiteResults("three", {each.name: each for each in members})


@pytest.fixture
def three() -> SuiteResults:
    return suite(
        member("birds", (0.1, 0.0, 0.0), 1),
        member("cars", (0.1, 0.0, 0.0), 2),
        member("shoes", (0.0, 0.0, 0.0), 3),
    )


def test_a_method_is_above_on_as_many_data_sets_as_it_is(three: SuiteResults) -> None:
    summary = SuiteSummary(three)
    first, second, rest = summary.comparisons["ensemble"]
    assert {first.better, second.better} == {"a"}
    assert [pair.num_above for pair in (first, second, rest)] == [2, 2, 0]
    assert [pair.num_below for pair in (first, second, rest)] == [0, 0, 0]
    p = [0.0] * 3
    for index, name in enumerate(three.members):
        estimates = summary.members[name].estimates("ensemble")
        difference = estimate_difference(estimates["a"], estimates[first.other])
        t = difference.mean / (difference.error or 0.0)
        p[index] = float(stdtr(4, -t))  # the degrees of freedom of five searches
        assert first.differences[index] == pytest.approx(difference)
    # Three pairs, two directions; none of them is passed on.
    expected = [min(1.0, 6 * each) for each in at_least(p, independent=True)]
    assert first.above[:2] == pytest.approx(expected[:2])
    said = headline(summary)["ensemble"]
    assert "a is above b on at least 2 of 3 data sets (p" in said
    assert "shown to be below it on none, undecided on 1" in said


def test_the_mean_counts_each_data_set_alike(three: SuiteResults) -> None:
    summary = SuiteSummary(three)
    (pair,) = (p for p in summary.comparisons["ensemble"] if (p.better, p.other) == ("a", "b"))
    means = [difference.mean for difference in pair.differences if difference]
    assert pair.mean.mean == pytest.approx(sum(means) / 3)
    errors = [difference.error or 0.0 for difference in pair.differences if difference]
    width = (pair.mean.half_width or 0.0) / math.hypot(*errors) * 3
    assert 1.96 < width < 2.2  # the t quantile of about 20 degrees of freedom
    scores = [summary.members[name].estimates("ensemble")["b"].mean for name in summary.members]
    relative = [mean / score for mean, score in zip(means, scores, strict=True)]
    assert pair.relative.mean == pytest.approx(sum(relative) / 3)
    assert "points (95 % interval" in pair_sentence(pair, summary)
    assert pair.elsewhere is None
    six = suite(*(member(name, (0.1, 0.0, 0.0), i) for i, name in enumerate("uvwxyz")))
    found = SuiteSummary(six).comparisons["ensemble"][0]
    assert found.elsewhere is not None
    assert "on other data sets such as these" in pair_sentence(found, SuiteSummary(six))


def test_data_sets_that_share_a_seed_are_combined_as_dependent(three: SuiteResults) -> None:
    shared = suite(*(dataclasses.replace(m, config=m.config | {"seed": 0})
                     for m in three.members.values()))  # fmt: skip
    assert three.independent
    assert not shared.independent
    free, bound = (SuiteSummary(s).comparisons["ensemble"][0] for s in (three, shared))
    assert free.mean.mean == bound.mean.mean
    assert (free.mean.half_width or 0) < (bound.mean.half_width or 0)
    assert free.above != bound.above


def test_a_data_set_that_decides_nothing_still_counts(three: SuiteResults) -> None:
    members = dict(three.members)
    members["cars"] = dataclasses.replace(members["cars"], finished=False)
    summary = SuiteSummary(SuiteResults("three", members))
    assert summary.undecided == {"cars": "is not finished"}
    pair = summary.comparisons["ensemble"][0]
    assert (len(pair.above), pair.num_above) == (3, 1)
    assert pair.differences[1] is None
    assert math.isnan(pair.mean.mean)
    assert "at least 1 of 3 data sets" in headline(summary)["ensemble"]


def test_where_no_method_beats_raw_input_nothing_is_decided() -> None:
    baseline = ResultRow("birds", "raw pixels", "aggregate", 0, PRIMARY, 0.9)
    members = [member(name, (0.1, 0.0, 0.0), i) for i, name in enumerate(("birds", "cars"))]
    rows = tuple(dataclasses.replace(row, category="aggregate") for row in members[0].rows)
    for index, each in enumerate(members):
        protocol = each.config["protocol"] | {"categories": ["aggregate"]}
        members[index] = dataclasses.replace(
            each,
            rows=tuple(dataclasses.replace(row, category="aggregate") for row in each.rows),
            config=each.config | {"protocol": protocol},
        )
    members[0] = dataclasses.replace(members[0], rows=rows, baselines=(baseline,))
    summary = SuiteSummary(suite(*members))
    assert summary.undecided == {"birds": "has no method shown to be better than raw pixels"}
    assert summary.comparisons["aggregate"][0].num_above == 1


def test_differences_without_an_error_have_no_interval_and_show_nothing() -> None:
    """Of one training each."""
    members = [member(name, (0.1, 0.0, 0.0), i) for i, name in enumerate(("birds", "cars"))]
    single = [
        dataclasses.replace(each, rows=tuple(row for row in each.rows if row.reproduction == 0))
        for each in members
    ]
    summary = SuiteSummary(suite(*single))
    pair = summary.comparisons["ensemble"][0]
    assert pair.num_above == 0
    assert (pair.mean.half_width, pair.relative.half_width) == (None, None)
    assert pair.relative.mean == pytest.approx(0.2, abs=0.05)
    assert "what one search found for a is not shown to be above" in pair_sentence(pair, summary)


def test_ranks_leave_open_what_tests_do(three: SuiteResults) -> None:
    summary = SuiteSummary(three)
    assert summary.ranks("ensemble", "birds") == {"a": (1, 1), "b": (2, 3), "c": (2, 3)}
    assert summary.ranks("ensemble", "shoes") == dict.fromkeys(NAMES, (1, 3))


@pytest.mark.usefixtures("only_svg")
def test_the_files_hold_the_same_numbers(three: SuiteResults, tmp_path: Path) -> None:
    write_suite_report(three, tmp_path)
    data = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    pairs = list(csv.DictReader((tmp_path / "comparisons.csv").open()))
    assert [float(p["difference"]) for p in pairs] == [v["difference"] for v in data["verdicts"]]
    assert [int(p["above"]) for p in pairs] == [2, 2, 0]
    assert len(list(csv.DictReader((tmp_path / "results.csv").open()))) == 3 * 3 * 5 * 3
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "at least 2 of 3 data sets" in page
    tex = (tmp_path / "tables.tex").read_text("utf-8")
    assert tex.count(r"\multicolumn{3}{c}{birds}") == 1
    assert "a is above b on at least 2 of 3 data sets" in tex
    assert (tmp_path / "figures" / "forest_ensemble.svg").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": {"kind": "one", "sampler": "random", "trials": 10}}, "search.kind is"),
        ({"search": {"kind": "repeated", "sampler": "random", "trials": 20}}, "search.trials is"),
        ({"search": {**CONFIG["protocol"]["search"], "retrain": "none"}}, "search.retrain is"),
        ({"categories": ["ensemble", "complete"]}, "protocol.categories is"),
        ({"selects_by": "NMI"}, "protocol.selects_by is"),
    ],
)
def test_what_must_be_the_same(three: SuiteResults, change: dict[str, Any], message: str) -> None:
    other = three.members["cars"]
    config = other.config | {"protocol": other.config["protocol"] | change}
    members = dict(three.members) | {"cars": dataclasses.replace(other, config=config)}
    with pytest.raises(UsageError, match=message):
        SuiteSummary(SuiteResults("x", members))


def test_one_data_set_is_no_suite_and_none_counts_twice(three: SuiteResults) -> None:
    with pytest.raises(UsageError, match="two or more of them"):
        SuiteSummary(suite(three.members["birds"]))
    twin = {"birds": three.members["birds"], "again": three.members["birds"]}
    with pytest.raises(UsageError, match="the same data set, which would count twice"):
        SuiteSummary(SuiteResults("x", twin))


def test_tables_of_several_data_sets_get_one_verdict() -> None:
    def table(gap: float) -> list[dict[str, Any]]:
        return [
            {"method": m, "search": s, "trial": t, "validation": t, "test": score}
            for k, m in enumerate(("x", "y"))
            for s in range(5)
            for t in range(3)
            for score in [0.5 + gap * (m == "x") + 0.01 * math.sin(s + k) if t == 2 else ""]
        ]

    options: dict[str, Any] = {"draws": "adaptive", "scores": "retrained", "common_draws": "no"}
    data = compare({"one": table(0.1), "two": table(0.1)}, **options)
    (verdict,) = data["verdicts"]
    assert (verdict["better"], verdict["above"]) == ("x", 2)
    assert not data["independent"]
    assert "all 2 data sets" in data["text"]
    estimates = [over_searches([[0.5 + 0.01 * math.sin(s + k)] for s in range(5)]) for k in (0, 1)]
    gap = 0.1 + estimates[0].mean - estimates[1].mean
    assert verdict["difference"] == pytest.approx(gap)
