"""Repeated searches, and one random search that stands for many, from the plan to the results."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spied import TRAINING, Handed, Made, Spied, experiment, made_up_fold_runs

from reality_check.config.metrics import PRIMARY, Stage
from reality_check.data import ImageSet
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.trial_runner import TrialRunner
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


def margins(positive: Any, negative: Any) -> dict[str, Any]:
    return {"arguments": {"pos_margin": positive, "neg_margin": negative}}


UNIT = {"low": 0, "high": 1}
#: The best trial of ``warm`` in another folder.
KNOWN = {
    "arguments.pos_margin": 0.125,
    "arguments.neg_margin": 0.75,
    "learning_rates.trunk": 0.0015,
}
SEARCHED = ("one", "other", "one_control", "one_shared_control")


@dataclasses.dataclass
class Repeated:
    """Two searches of 3 trials each, of five methods.

    The searches of ``other`` start from the winners of ``one``, those of ``warm`` from ``known``;
    in the second search of ``warm``, all trials diverge.
    """

    recorded: Spied
    handed: Handed
    results: ExperimentResults
    known: Path


@pytest.fixture(scope="module")
def repeated(
    make_images: Callable[..., ImageSet], tmp_path_factory: pytest.TempPathFactory
) -> Repeated:
    known = tmp_path_factory.mktemp("known")
    best = {"search": 0, "number": 3, "value": 0.5, "params": KNOWN}
    made = [{"name": "warm", "best_trial": best}, {"name": "one", "best_trial": None}]
    (known / "summary.json").write_text(json.dumps({"methods": made}))
    start = {"method": "one", "neutral": {"arguments.neg_margin": 0.5}}
    wide = margins({"low": 0, "high": 2}, {"low": 0.1, "high": 1})
    methods = [
        METHOD | {"name": "one"} | margins(UNIT, 0.5),
        METHOD | {"name": "other", "starts_from": start} | wide,
        METHOD | {"name": "warm", "warm_start": str(known)} | margins(UNIT, UNIT),
    ]
    controls = ["one", {"of": "one", "draws": "shared"}]
    protocol = search(kind="repeated", trials=3, repeats=2)
    searched = TrialRunner._search

    def diverge(self: TrialRunner, trial: Any) -> Any:
        if trial.search == 1 and trial.method.name == "warm":
            raise Diverged("the loss became nan")
        return searched(self, trial)

    recorded = Spied(
        experiment(protocol=protocol, methods=methods, controls=controls),
        tmp_path_factory.mktemp("repeated"),
        make_images(16),
    )
    with made_up_fold_runs() as handed, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialRunner, "_search", diverge)
        recorded.work()
    assert recorded.is_complete()
    return Repeated(recorded, handed, collect(recorded), known)


def test_every_search_has_trials_a_winner_and_reproductions_of_its_own(repeated: Repeated) -> None:
    recorded, folders = repeated.recorded, [folder for *_, folder in repeated.handed]
    counts = Counter((folder.parts[-4], folder.parts[-3]) for folder in folders)
    assert len(set(folders)) == len(folders)
    for name in SEARCHED:
        for place in ("search", "search_1"):
            assert counts[name, place] == 3 * 4
        assert counts[name, "reproductions"] == 2 * 2 * 4
        assert counts[name, "final"] == 2 * 2
        plan = recorded.state(name, Stage.REPRODUCTIONS).retrained
        winners = [recorded.state(name, Stage.SEARCH, number).best for number in range(2)]
        assert [one.search for one in plan] == [0, 0, 1, 1]
        assert [one.trial for one in plan] == [w for w in winners for _ in range(2)]
        for stage in (Stage.REPRODUCTIONS, Stage.FINAL):
            study = recorded.state(name, stage)
            assert study.given is not None
            for index, one in enumerate(plan):
                params = dict(study.given[index] or {})
                assert one.trial is not None
                assert params.items() >= one.trial.params.items()


def test_results_are_over_searches(repeated: Repeated) -> None:
    results = repeated.results
    rows = [r for r in results.rows if (r.method, r.category) == ("one", "aggregate")]
    rows = [row for row in rows if row.metric == PRIMARY]
    assert [(row.search, row.reproduction) for row in rows] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    (own,) = (one for one in results.methods if one.name == "one")
    assert own.retrained == tuple(dict.fromkeys((row.search, row.trial) for row in rows))
    summary = Summary(results)
    assert summary.evidence is Evidence.SEARCHES
    estimate = summary.estimates("aggregate")["one"]
    assert (estimate.n, estimate.degrees) == (2, 1)
    means = summary.samples("aggregate", PRIMARY)["one"]
    assert len(set(means)) == 2
    # Of three trials a search: one third more than Student's.
    assert estimate.half_width == pytest.approx(4 / 3 * t_interval(means).half_width)


def test_draws_depend_on_the_name_of_the_parameter_and_not_on_the_method(
    repeated: Repeated,
) -> None:
    results = repeated.results
    one, other, control = (drawn(results, name) for name in ("one", "other", "one_control"))
    assert drawn(results, "one_shared_control") == one
    scores = {m.name: [trial.value for trial in m.search] for m in results.methods}
    assert scores["one_shared_control"] != scores["one"], "its networks have seeds of their own"
    assert len(one) == 6
    name = "arguments.pos_margin"
    for key, params in one.items():
        assert control[key][name] != params[name], "a control has seeds of its own"
        if key[1] > 0:  # its first trial is given
            assert other[key][name] == pytest.approx(2 * params[name]), "the same share"
            assert other[key]["learning_rates.trunk"] == params["learning_rates.trunk"]
    assert len({params[name] for params in one.values()}) == 6, "searches differ"
    assert [(m.control_of, m.has_own_draws) for m in results.methods] == [
        (None, False), (None, False), (None, False), ("one", True), ("one", False),
    ]  # fmt: skip
    summary = Summary(results)
    named = {c.better for c in summary.comparisons("aggregate")}
    named |= {c.other for c in summary.comparisons("aggregate")}
    assert named == {"one", "other", "warm"}, "a control is no candidate"
    assert list(summary.control_differences("aggregate")) == ["one_control", "one_shared_control"]


def test_a_search_starts_from_the_winner_of_a_simpler_method(repeated: Repeated) -> None:
    other = drawn(repeated.results, "other")
    for number in range(2):
        winner = repeated.recorded.state("one", Stage.SEARCH, number).best
        assert winner is not None
        assert other[number, 0] == {**winner.params, "arguments.neg_margin": 0.5}
        assert other[number, 1]["arguments.neg_margin"] != 0.5


def test_a_search_begins_with_the_best_trial_of_another_folder(repeated: Repeated) -> None:
    firsts = drawn(repeated.results, "warm")
    assert firsts[0, 0] == firsts[1, 0] == KNOWN
    assert firsts[0, 1] != KNOWN
    (said,) = [d for d in repeated.results.deviations if d.topic == "warm start"]
    assert said.serious
    assert str(repeated.known) in said.text


def test_a_search_of_which_all_trials_diverge_counts_with_0(repeated: Repeated) -> None:
    values = Summary(repeated.results).samples("aggregate", PRIMARY)["warm"]
    assert values[1] == 0
    assert values[0] > 0
    assert any(
        d.serious and "1 of 2 searches of warm" in d.text for d in repeated.results.deviations
    )


def test_methods_have_trials_of_their_own_where_these_are_counted_by_parameters(
    make: Made, handed: Handed
) -> None:
    methods = [METHOD | {"name": "one", "trials": 2}, METHOD | {"name": "two", "trials": 4}]
    recorded = make(protocol=search(1, trials_per_parameter=2), methods=methods)
    recorded.work()
    results = collect(recorded)
    assert {m.name: len(m.search) for m in results.methods} == {"one": 2, "two": 4}
    assert results.finished
    topics = {deviation.topic for deviation in results.deviations}
    assert "trials per parameter" in topics
    assert not topics & {"unequal search", "unfinished"}


def test_a_random_search_stands_for_all_that_are_in_it(make: Made, handed: Handed) -> None:
    protocol = search(1, kind="subsets", trials=6, budget=2, retrain_best=5)
    recorded = make(protocol=protocol, methods=[METHOD | {"name": "contrastive"}])
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
        "starts_from": {"method": "plain", "neutral": {"arguments.neg_margin": 0.5}},
    }
    | margins(UNIT, UNIT),
    METHOD | {"name": "plain"} | margins(UNIT, 0.5),
]


def test_a_longer_search_has_another_winner_and_what_came_of_it_is_made_again(
    make: Made, handed: Handed
) -> None:
    """The first trial of a search that starts from it, and all reproductions; not what stays."""
    short = make(protocol=search(1, trials=2), methods=STARTING)
    short.work()
    before, trained = short.state("plain", Stage.SEARCH).best, len(handed)
    longer = make(protocol=search(1, trials=6), methods=STARTING)
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


def test_the_report_says_how_batches_were_embedded_in_parts(make: Made) -> None:
    training = {**TRAINING, "max_epochs": 1, "freeze_batchnorm": True, "sub_batch_size": 2}
    protocol = {**search(1, kind="one", trials=1), "training": training, "split": {"folds": 2}}
    losses = {"a": "ContrastiveLoss", "b": "ContrastiveLoss", "c": "NormalizedSoftmaxLoss"}
    methods = [{"name": n, "loss": loss, "samples_per_class": 2} for n, loss in losses.items()]
    recorded = make(protocol=protocol | {"categories": ["aggregate"]}, methods=methods)
    recorded.work()
    assert dict(collect(recorded).facts)["Trained with"] == (
        "batches in parts by GradCache (4 trials); "
        "batches in parts by gradient accumulation (2 trials)"
    )
