"""Repeated searches, and one random search that stands for many, from the plan to the results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.spied import TRAINING, Handed, Made

from reality_check.config.metrics import PRIMARY, Stage
from reality_check.report.collect import collect
from reality_check.report.summary import Evidence, Summary
from reality_check.results import ExperimentResults
from reality_check.statistics import t_interval

METHOD = {"base": "contrastive", "samples_per_class": 2, "loss": "ContrastiveLoss"}


def search(reproductions: int = 2, **keys: Any) -> dict[str, Any]:
    """The protocol of the tests with another search."""
    return {
        "base": "quick_one_search",
        "training": TRAINING,
        "search": keys if keys.get("kind") == "subsets" else {"sampler": "random", **keys},
        "reproductions": reproductions,
        "categories": ["aggregate", "complete"],
    }


def drawn(results: ExperimentResults, method: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The parameters of every trial, by search and number."""
    (own,) = (one for one in results.methods if one.name == method)
    return {(trial.search, trial.trial_index): dict(trial.params) for trial in own.search}


def test_every_search_has_trials_a_winner_and_reproductions_of_its_own(
    make: Made, handed: Handed
) -> None:
    recorded = make(protocol=search(kind="repeated", trials=3, repeats=3))
    recorded.work()
    counts = Counter((folder.parts[-4], folder.parts[-3]) for *_, folder in handed)
    for name in ("contrastive", "heated_up_softmax"):
        for place in ("search", "search_1", "search_2"):
            assert counts[name, place] == 3 * 4
        assert counts[name, "reproductions"] == 3 * 2 * 4
        assert counts[name, "final"] == 3 * 2
    folders = [folder for *_, folder in handed]
    assert len(set(folders)) == len(folders)
    for method in recorded.experiment.methods:
        plan = recorded.state(method.name, Stage.REPRODUCTIONS).retrained
        winners = [recorded.state(method.name, Stage.SEARCH, number).best for number in range(3)]
        assert [one.search for one in plan] == [0, 0, 1, 1, 2, 2]
        assert [one.trial for one in plan] == [w for w in winners for _ in range(2)]
        for stage in (Stage.REPRODUCTIONS, Stage.FINAL):
            study = recorded.state(method.name, stage)
            assert study.given is not None
            for index, one in enumerate(plan):
                params = dict(study.given[index] or {})
                assert one.trial is not None
                assert params.items() >= one.trial.params.items()


def test_results_are_over_searches(make: Made, handed: Handed) -> None:
    recorded = make(protocol=search(kind="repeated", trials=2, repeats=3))
    recorded.work()
    results = collect(recorded)
    rows = [r for r in results.rows if (r.method, r.category) == ("contrastive", "aggregate")]
    rows = [row for row in rows if row.metric == PRIMARY]
    assert [(row.search, row.reproduction) for row in rows] == [
        (0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5),
    ]  # fmt: skip
    assert results.methods[0].retrained == tuple(
        dict.fromkeys((row.search, row.trial) for row in rows)
    )
    summary = Summary(results)
    assert summary.evidence is Evidence.SEARCHES
    estimate = summary.estimates("aggregate")["contrastive"]
    assert (estimate.n, estimate.degrees) == (3, 2)
    means = summary.samples("aggregate", PRIMARY)["contrastive"]
    assert len(means) == 3
    # Of two trials a search: one half more than Student's.
    assert estimate.half_width == pytest.approx(1.5 * t_interval(means).half_width)


def test_methods_have_trials_of_their_own_where_these_are_counted_by_parameters(
    make: Made, handed: Handed
) -> None:
    methods = [METHOD | {"name": "one", "trials": 2}, METHOD | {"name": "two", "trials": 4}]
    recorded = make(protocol=search(trials_per_parameter=2), methods=methods)
    recorded.work()
    results = collect(recorded)
    assert {m.name: len(m.search) for m in results.methods} == {"one": 2, "two": 4}
    assert results.finished
    topics = {deviation.topic for deviation in results.deviations}
    assert "trials per parameter" in topics
    assert not topics & {"unequal search", "unfinished"}


def test_draws_depend_on_the_name_of_the_parameter_and_not_on_the_method(
    make: Made, handed: Handed
) -> None:
    methods = [
        METHOD | {"name": "one", "arguments": {"pos_margin": {"low": 0, "high": 1}}},
        METHOD
        | {
            "name": "other",
            "arguments": {
                "pos_margin": {"low": 0, "high": 2},
                "neg_margin": {"low": 0.1, "high": 1},
            },
        },
    ]
    twice = search(kind="repeated", trials=3, repeats=2)
    controls = ["one", {"of": "one", "draws": "shared"}]
    recorded = make(protocol=twice, methods=methods, controls=controls)
    recorded.work()
    results = collect(recorded)
    one, other, control = (drawn(results, name) for name in ("one", "other", "one_control"))
    assert drawn(results, "one_shared_control") == one
    scores = {m.name: [trial.value for trial in m.search] for m in results.methods}
    assert scores["one_shared_control"] != scores["one"], "its networks have seeds of their own"
    assert len(one) == 6
    name = "arguments.pos_margin"
    for key, params in one.items():
        assert other[key][name] == pytest.approx(2 * params[name]), "the same share of its range"
        assert other[key]["learning_rates.trunk"] == params["learning_rates.trunk"]
        assert control[key][name] != params[name], "a control has seeds of its own"
    assert len({params[name] for params in one.values()}) == 6, "searches differ"
    assert [(m.control_of, m.has_own_draws) for m in results.methods] == [
        (None, False), (None, False), ("one", True), ("one", False),
    ]  # fmt: skip
    summary = Summary(results)
    named = {c.better for c in summary.comparisons("aggregate")}
    named |= {c.other for c in summary.comparisons("aggregate")}
    assert named == {"one", "other"}, "a control is no candidate"
    assert list(summary.control_differences("aggregate")) == ["one_control", "one_shared_control"]


def test_a_random_search_stands_for_all_that_are_in_it(make: Made, handed: Handed) -> None:
    recorded = make(protocol=search(1, kind="subsets", trials=6, budget=2, retrain_best=5))
    recorded.work()
    results = collect(recorded)
    method = results.methods[0]
    best = sorted(method.search, key=lambda trial: -(trial.value or 0.0))[:5]
    assert method.retrained == tuple((0, trial.trial_index) for trial in best)
    runs = {run.trial_index: run for run in method.reproductions}
    for rank, trial in enumerate(best):
        assert runs[rank].retrained == trial.trial_index
        assert runs[rank].params == trial.params
    summary = Summary(results)
    assert summary.evidence is Evidence.SUBSETS
    assert summary.estimates("aggregate")["contrastive"].n == 6
    assert sum(summary.shares("aggregate", "contrastive").values()) == pytest.approx(1)


#: The first trial of ``wide`` is the winner of ``plain``.
STARTING = [
    METHOD
    | {
        "name": "wide",
        "arguments": {
            "pos_margin": {"low": 0, "high": 1},
            "neg_margin": {"low": 0, "high": 1},
        },
        "starts_from": {"method": "plain", "neutral": {"arguments.neg_margin": 0.5}},
    },
    METHOD
    | {"name": "plain", "arguments": {"pos_margin": {"low": 0, "high": 1}, "neg_margin": 0.5}},
]


def test_a_search_starts_from_the_winner_of_a_simpler_method(make: Made, handed: Handed) -> None:
    recorded = make(protocol=search(kind="repeated", trials=3, repeats=2), methods=STARTING)
    recorded.work()
    wide = drawn(collect(recorded), "wide")
    for number in range(2):
        winner = recorded.state("plain", Stage.SEARCH, number).best
        assert winner is not None
        assert wide[number, 0] == {**winner.params, "arguments.neg_margin": 0.5}
        assert wide[number, 1]["arguments.neg_margin"] != 0.5


def test_a_search_begins_with_the_best_trial_of_another_folder(
    make: Made, handed: Handed, tmp_path: Path
) -> None:
    ranges = {"pos_margin": {"low": 0, "high": 1}, "neg_margin": {"low": 0, "high": 1}}
    known = {"arguments.pos_margin": 0.125, "arguments.neg_margin": 0.75}
    known["learning_rates.trunk"] = 0.0015
    best = {"search": 0, "number": 3, "value": 0.5, "params": known}
    made = [{"name": "contrastive", "best_trial": best}, {"name": "other", "best_trial": None}]
    (tmp_path / "summary.json").write_text(json.dumps({"methods": made}))
    method = METHOD | {"arguments": ranges, "warm_start": str(tmp_path)}
    recorded = make(protocol=search(kind="repeated", trials=2, repeats=2), methods=[method])
    recorded.work()
    results = collect(recorded)
    firsts = drawn(results, "contrastive")
    assert firsts[0, 0] == firsts[1, 0] == known
    assert firsts[0, 1] != known
    (said,) = [d for d in results.deviations if d.topic == "warm start"]
    assert said.serious
    assert str(tmp_path) in said.text


def test_a_longer_search_has_another_winner_and_what_came_of_it_is_made_again(
    make: Made, handed: Handed
) -> None:
    """The first trial of a search that starts from it, and all reproductions; not what stays."""
    short = make(protocol=search(trials=2), methods=STARTING)
    short.work()
    before, trained = short.state("plain", Stage.SEARCH).best, len(handed)
    longer = make(protocol=search(trials=6), methods=STARTING)
    longer.work()
    after = longer.state("plain", Stage.SEARCH).best
    assert before is not None
    assert after is not None
    assert after.trial_index != before.trial_index
    assert drawn(collect(longer), "wide")[0, 0] == {**after.params, "arguments.neg_margin": 0.5}
    names = [str(folder.relative_to(longer.out_dir)) for *_, folder in handed[trained:]]
    assert "plain/search/000/fold_0" not in names
    assert "wide/search/000/fold_0" in names
    assert "wide/search/001/fold_0" not in names
    assert "plain/reproductions/000/fold_0" in names
    assert longer.is_complete()
    for method in ("plain", "wide"):
        study = longer.state(method, Stage.REPRODUCTIONS)
        assert any(trial.superseded for trial in study.attempts)
        assert [trial.made_of["params"] for trial in study.complete.values()] == [
            dict(one.trial.params) for one in study.retrained if one.trial is not None
        ]


def test_a_search_of_which_all_trials_diverge_counts_with_0(
    make: Made, handed: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reality_check.evaluation.scoring import Diverged
    from reality_check.launch.trial_runner import TrialRunner

    searched = TrialRunner._search

    def diverge(self: TrialRunner, trial: Any) -> Any:
        if trial.search == 1 and trial.method.name == "contrastive":
            raise Diverged("the loss became nan")
        return searched(self, trial)

    monkeypatch.setattr(TrialRunner, "_search", diverge)
    recorded = make(protocol=search(kind="repeated", trials=2, repeats=3))
    recorded.work()
    assert recorded.is_complete()
    results = collect(recorded)
    summary = Summary(results)
    values = summary.samples("aggregate", PRIMARY)["contrastive"]
    assert values[1] == 0
    assert values[0] > 0
    assert any(d.serious and "1 of 3 searches of contrastive" in d.text for d in results.deviations)


@pytest.mark.parametrize(
    ("loss", "way"),
    [("NormalizedSoftmaxLoss", "gradient accumulation"), ("ContrastiveLoss", "GradCache")],
)
def test_the_report_says_how_batches_were_embedded_in_parts(
    make: Made, loss: str, way: str
) -> None:
    training = {**TRAINING, "freeze_batchnorm": True, "sub_batch_size": 2}
    protocol = {**search(1, kind="one", trials=1), "training": training}
    method = {"name": "a", "loss": loss, "samples_per_class": 2}
    recorded = make(protocol=protocol, methods=[method])
    recorded.work()
    assert dict(collect(recorded).facts)["Trained with"] == f"batches in parts by {way}"
