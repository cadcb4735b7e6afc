"""What a protocol may say about its searches, and the sentence for everything else."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import pytest
from support.paths import ROOT
from support.refusals import refused

from reality_check.api import load_results
from reality_check.config import Experiment, load_experiment
from reality_check.config.metrics import PRIMARY
from reality_check.config.protocol import LEFT_OUT, least_retrained
from reality_check.registry.pack import read_pack
from reality_check.report.planning import resolution_sentence, scatter_of
from reality_check.report.sections.overview import resolution
from reality_check.report.summary import Summary
from reality_check.report.treatment import unequal_treatment
from reality_check.results import ExperimentResults, ResultRow
from reality_check.statistics import MAX_LEFT_OUT
from reality_check.studies.plan import count_trainings
from reality_check.training.methods import search_space
from reality_check.training.preflight import check_metrics, check_starts, with_trials
from reality_check.utils.errors import UsageError


def quick(*changes: str) -> Experiment:
    return load_experiment("quickstart", ["protocol=quick_one_search", *changes])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["protocol.search.repeats=0"], ["repeats", "greater than or equal to 1", "got 0"]),
        (
            ["protocol.search.trials=4", "protocol.search.startup_trials=5"],
            ["startup_trials=5 of trials=4", "startup_trials: 2"],
        ),
        (["protocol.search.budget=3"], ["sampler is tpe", "sampler: random"]),
        (
            ["protocol.search.sampler=random", "protocol.search.budget=7"],
            ["budget=7 is more than trials=6", "budget: null"],
        ),
        (
            ["protocol.search={sampler: random, trials: 30, repeats: 2, budget: 5}"],
            ["repeats is 2", "trials: 60"],
        ),
        (
            ["protocol.search={sampler: random, trials: 50, budget: 10, retrain_best: 9}"],
            ["retrain_best=9", "at least the best 15", "2%"],
        ),
        (["protocol.search={retrain_best: 9}"], ["retrain_best=9", "budget: 10"]),
        (
            [
                "protocol.search={sampler: random, trials: 50, budget: 10}",
                "protocol.search.trials_per_parameter=5",
            ],
            ["budget=10 is the same for all methods", "remove one"],
        ),
        (["protocol.search.trials_per_parameter=0"], ["trials_per_parameter", "got 0"]),
        (
            ["methods.contrastive.trials=5"],
            ["'contrastive': trials=5", "same number", "protocol.search.trials_per_parameter"],
        ),
        (
            ["methods.contrastive.phase2={lr_factor: 0.1}", "protocol.training.max_epochs=1"],
            ["'contrastive' has a second phase", "max_epochs=1", "max_epochs: 2"],
        ),
        (["controls=[contrastve]"], ["contrastve", "not one of the methods", "'contrastive'"]),
        (["methods.contrastive.starts_from=nobody"], ["starts from 'nobody'", "not one of"]),
        (
            [
                "methods.contrastive.starts_from=normalized_softmax",
                "methods.normalized_softmax.starts_from=contrastive",
            ],
            ["wait for each other", "normalized_softmax -> contrastive -> normalized_softmax"],
        ),
        (
            ["protocol=as_published", "protocol.selects_on=last", "protocol.search.repeats=2"],
            ["has no search", "search.repeats: 1"],
        ),
        (["protocol.search.looks=[3]"], ["looks", "all repeats are made; remove the key"]),
    ],
)
def test_bad_input_gets_one_sentence(changes: list[str], words: list[str]) -> None:
    with refused(*words):
        quick(*changes)


def test_fewer_trials_have_fewer_startup_trials() -> None:
    assert quick("protocol.search.trials=2").protocol.search.startup_trials == 2
    assert quick("protocol.search.trials=5").protocol.search.startup_trials == 3


@pytest.mark.parametrize(("trials", "budget", "least"), [(50, 10, 15), (16, 5, 8), (6, 6, 1)])
def test_as_few_are_retrained_as_may_be(trials: int, budget: int, least: int) -> None:
    assert least_retrained(trials, budget) == least
    left = math.comb(trials - least, budget) / math.comb(trials, budget)
    more = math.comb(trials - least + 1, budget) / math.comb(trials, budget)
    assert left <= LEFT_OUT < more
    assert LEFT_OUT == MAX_LEFT_OUT


def test_trials_by_what_a_method_searches() -> None:
    asked = quick("protocol.search.trials_per_parameter=4", "protocol.search.repeats=2")
    counted = with_trials(asked)
    searched = {m.name: len(search_space(m, asked.protocol)) for m in asked.methods}
    assert len(set(searched.values())) > 1
    trials = {m.name: counted.trials_of(m) for m in counted.methods}
    assert trials == {name: 4 * count for name, count in searched.items()}
    folds, runs = asked.protocol.split.folds, asked.protocol.runs
    assert count_trainings(counted) == sum(
        2 * each * folds + runs * (folds + ("complete" in asked.protocol.categories))
        for each in trials.values()
    )
    assert with_trials(quick()) == quick()
    said = [d for d in unequal_treatment(counted, ()) if d.topic == "trials per parameter"]
    assert len(said) == 1


START = "{method: contrastive, neutral: %s}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            ["methods.normalized_softmax.starts_from=contrastive"],
            ["which searches arguments.neg_margin", "'normalized_softmax' does not"],
        ),
        (
            ["methods.contrastive.arguments={pos_margin: 0, neg_margin: 1}"],
            ["neutral lacks arguments.temperature"],
        ),
        (
            ["methods.contrastive.arguments={pos_margin: 0, neg_margin: 1}", "{x: 1}"],
            ["neutral has 'x'", "arguments.temperature"],
        ),
        (
            [
                "methods.contrastive.arguments={pos_margin: 0, neg_margin: 1}",
                "{arguments.temperature: 9, learning_rates.loss: 0.01}",
            ],
            ["arguments.temperature=9", "not in its range"],
        ),
    ],
)
def test_what_cannot_start_from_another_method(changes: list[str], words: list[str]) -> None:
    neutral = changes.pop() if changes[-1].startswith("{") else "{}"
    start = f"methods.normalized_softmax.starts_from={START % neutral}"
    with refused(*words):
        check_starts(quick(*changes, start))


WARM = "methods.contrastive.warm_start"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([f"{WARM}=nowhere"], ["nowhere/summary.json", "finished run"]),
        ([f"{WARM}={{values: {{x: 1}}}}"], ["budget needs trials", "budget: null"]),
        (
            [
                f"{WARM}={{values: {{x: 1}}}}",
                "methods.contrastive.starts_from=normalized_softmax",
            ],
            ["one first trial"],
        ),
    ],
)
def test_where_a_search_cannot_begin(changes: list[str], words: list[str]) -> None:
    with refused(*words):
        load_experiment("quickstart", changes)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("{arguments.neg_margin: 0.5}", ["lacks learning_rates.trunk"]),
        ("{arguments.neg_margin: 0.5, learning_rates.trunk: 9}", ["trunk=9", "not in its range"]),
        (
            "{arguments.neg_margin: 0.5, learning_rates.trunk: 0.001, arguments.negmargin: 1}",
            ["not searched", "Did you mean 'arguments.neg_margin'"],
        ),
    ],
)
def test_values_of_a_first_trial_are_those_that_are_searched(values: str, words: list[str]) -> None:
    margins = "methods.contrastive.arguments={pos_margin: 0, neg_margin: {low: 0, high: 1}}"
    with refused(*words):
        check_starts(quick(margins, f"{WARM}={{values: {values}}}"))


def test_a_plan_says_what_it_can_show() -> None:
    one = resolution_sentence(quick().protocol, 4)
    assert "no verdict on losses" in one

    def least(protocol: str) -> float:
        text = resolution_sentence(load_experiment("quickstart", [protocol]).protocol, 2)
        return float(text.split()[1])

    # docs/calibration.md: 5 x 10 finds 1.5 to 2.2 points, all subsets 1.2 to 1.5.
    assert 1.5 < least("protocol=mlrc_5x10") < 2.2
    assert 1.2 < least("protocol=mlrc_subsets") < 1.6


@pytest.mark.parametrize("trials", [1, 5])
def test_a_plan_that_shows_nothing_says_why(trials: int) -> None:
    search = f"{{trials: {trials}, budget: {trials}, sampler: random, startup_trials: 1}}"
    text = resolution_sentence(quick(f"protocol.search={search}").protocol, 2)
    assert text.startswith(f"differences: nothing can be estimated from {trials} trial")


def test_check_and_report_say_the_same_of_the_same_scatter() -> None:
    pack = ROOT / "registry" / "glyphs_quick.pack"
    results = load_results(pack)
    planned = resolution_sentence(
        read_pack(pack).experiment.protocol, len(results.methods), scatter_of(results)
    )
    said = resolution(Summary(results))
    assert f"difference of {planned.split()[1]} points" in said
    assert "scatter by 3.8 points" in said


def test_a_plan_takes_the_scatter_of_a_finished_experiment(made_searches: Any) -> None:
    results = made_searches
    shares = scatter_of(results)
    assert shares.search == pytest.approx(0.01**2)
    assert shares.training == pytest.approx(0.002**2)
    protocol = load_experiment("quickstart", ["protocol=mlrc_5x10"]).protocol
    text = resolution_sentence(protocol, 2, shares)
    assert "by 1.0 and 0.2 points (as in that folder)" in text
    assert float(text.split()[1]) > float(resolution_sentence(protocol, 2).split()[1])
    with pytest.raises(UsageError, match="does not show how much searches vary"):
        scatter_of(dataclasses.replace(results, rows=results.rows[:1]))


@pytest.fixture
def made_searches() -> ExperimentResults:
    """Two searches a point apart (standard deviation), with two trainings each, of one method."""
    half, gap = 0.002 / math.sqrt(2), math.sqrt(2 * (0.01**2 + 0.002**2 / 2))
    values = [0.3 - half, 0.3 + half, 0.3 + gap - half, 0.3 + gap + half]
    rows = tuple(
        ResultRow("e", "m", "aggregate", run, PRIMARY, value, search=run // 2, trial=0)
        for run, value in enumerate(values)
    )
    return ExperimentResults("e", "p", "mlrc", True, (), rows)


# -- metrics -------------------------------------------------------------------------------------


def test_metrics_that_need_faiss_are_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = quick("protocol.final_metrics=[recall_at_2,NMI,binary_precision_at_1]").protocol
    check_metrics(asked)
    monkeypatch.setitem(sys.modules, "faiss", None)
    check_metrics(quick("protocol.final_metrics=[recall_at_2]").protocol)
    with pytest.raises(UsageError, match=r"has NMI, binary_precision_at_1, .*install faiss-cpu"):
        check_metrics(asked)
