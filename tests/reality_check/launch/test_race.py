"""Races: trials that stop early, the rest as without a race, and scores of their own networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.spied import Spied

import reality_check as rc
from reality_check.config import Experiment, compose
from reality_check.config.metrics import PRIMARY
from reality_check.launch.trial_runner import TrialRunner
from reality_check.report.analysis import Analysis
from reality_check.report.collect import collect
from reality_check.report.render.markdown import report_md
from reality_check.report.render.summary_json import summary_data
from reality_check.report.sections import report_sections
from reality_check.report.summary import Summary
from reality_check.results import ExperimentResults, TrialRecord
from reality_check.studies.attempts import joined
from reality_check.studies.output_folder import lock_experiment
from reality_check.studies.progress import trial_name
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError, WorkFailed

#: Of 8 trials, 6 and 5 continue.
RACE = {"kind": "subsets", "trials": 8, "budget": 3, "race": [0.75, 0.6], "retrain": "best"}
TRAINING = {
    "max_epochs": 4,
    "iterations_per_epoch": 1,
    "evaluate_every": 1,
    "patience": 3,
    "batch_size": 8,
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with clusters of 16 numbers."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 6)
    x = generator.normal(size=(24, 16))[y] + generator.normal(size=(len(y), 16))
    path = tmp_path_factory.mktemp("data") / "vectors.npz"
    np.savez(path, x=x.astype(np.float32), y=y)
    return str(path)


def raced(vectors: str, categories: Sequence[str] = (), **search: Any) -> Experiment:
    protocol = {
        "base": "features_quick",
        "split": {"rule": "mlrc", "folds": 3},
        "training": TRAINING,
        "search": RACE | search,
        "final_metrics": [],
    }
    if categories:
        protocol["categories"] = [*categories]
    data = {"name": "raced", "dataset": vectors, "model": "identity"}
    return compose(data | {"protocol": protocol, "methods": ["quick/normalized_softmax"]})


def worked(experiment: Experiment, out: Path) -> ExperimentResults:
    out.mkdir(exist_ok=True)
    recorded = Spied(experiment, out)
    recorded.work()
    return collect(recorded)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("race")


@pytest.fixture(scope="module")
def race(vectors: str, out: Path) -> ExperimentResults:
    return worked(raced(vectors, retrain="none"), out)


@pytest.fixture(scope="module")
def whole(vectors: str, tmp_path_factory: pytest.TempPathFactory) -> ExperimentResults:
    """The same without a race."""
    return worked(raced(vectors, race=[], retrain="none"), tmp_path_factory.mktemp("whole"))


def trials(results: ExperimentResults) -> list[TrialRecord]:
    return list(results.methods[0].search)


def scores(results: ExperimentResults) -> dict[tuple[str, int | None], float]:
    """The test scores by category and trial."""
    rows = (row for row in results.rows if row.metric == PRIMARY)
    return {(row.category, row.trial): row.value for row in rows}


def test_finalists_have_the_results_of_a_search_without_a_race(
    race: ExperimentResults, whole: ExperimentResults
) -> None:
    finalists = {t.trial_index for t in trials(race) if t.stopped_after is None}
    assert len(finalists) == 5
    for trial, other in zip(trials(race), trials(whole), strict=True):
        assert trial.params == other.params
        if trial.trial_index in finalists:
            for name in ("value", "fold_values", "fold_epochs", "epochs_spent", "curves"):
                assert getattr(trial, name) == getattr(other, name), name
    assert {trial for _, trial in scores(race)} == finalists
    assert scores(race).items() <= scores(whole).items()


def test_the_worst_stop_first_and_have_no_value(
    race: ExperimentResults, whole: ExperimentResults
) -> None:
    stops = [t.stopped_after for t in trials(race)]
    assert [stops.count(end) for end in (1, 2, None)] == [2, 1, 5]
    left = {*range(8)}
    for end, number in ((1, 6), (2, 5)):
        reached = {
            t.trial_index: np.mean(t.fold_values[:end])
            for t in trials(whole)
            if t.trial_index in left
        }
        left = {*sorted(reached, key=lambda index: -reached[index])[:number]}
        assert left == {
            t.trial_index for t in trials(race) if t.stopped_after is None or t.stopped_after > end
        }
    for trial in trials(race):
        assert (trial.value is None) == (trial.stopped_after is not None)
        assert len(trial.fold_values) == {None: 3, 2: 2}.get(trial.stopped_after, 1)


def test_its_estimates_are_those_without_a_race_but_for_trials_that_are_left_out(
    race: ExperimentResults, whole: ExperimentResults
) -> None:
    of_race, of_whole = (Summary(each).estimates("aggregate") for each in (race, whole))
    (estimate,), (other,) = of_race.values(), of_whole.values()
    assert estimate.n == other.n == 8
    assert estimate.mean == pytest.approx(other.mean, abs=0.01)
    assert estimate.half_width == pytest.approx(other.half_width, rel=0.2)


def test_only_the_networks_that_were_scored_are_kept(out: Path, race: ExperimentResults) -> None:
    method = race.methods[0].name
    kept = {file.parts[-3] for file in (out / method / "search").rglob("*.pt")}
    assert kept == {f"{trial:03d}" for _, trial in race.methods[0].retrained}


def test_own_networks_are_loaded_by_the_number_of_their_reproduction(
    out: Path, race: ExperimentResults
) -> None:
    method = race.methods[0].name
    experiment = raced(race.config["dataset"]["path"], retrain="none")
    lock_experiment(experiment.model_copy(update={"code": {"dataset": "1"}}), out)
    _, first = race.methods[0].retrained[0]
    found = rc.load_network(out, method, reproduction=0, fold=1).network.state_dict()
    kept = checkpoints.load(out / method / "search" / f"{first:03d}" / "fold_1" / "model.pt")
    assert kept is not None
    assert all(torch.equal(found[name], kept[name]) for name in kept)
    where: Any
    for where in ({"fold": None}, {"reproduction": -1}, {"reproduction": 7}):
        with pytest.raises(UsageError, match="there is no"):
            rc.load_network(out, method, **where)


def test_the_report_names_own_networks_and_says_who_was_stopped(race: ExperimentResults) -> None:
    text = report_md("race", report_sections(Analysis(Summary(race)))).replace("\\", "")
    assert "MAP@R (own networks)" in text
    assert "Winner's curse" not in text
    row = "| normalized_softmax | 2 (at best no. 7) | 1 (at best no. 6) | 5 |"
    saved = 1 - (2 * 1 + 2 + 5 * 3) / 24
    assert f"{row} {saved:.0%} |".replace("%", " %") in text


def test_compare_gives_the_verdict_of_the_report(race: ExperimentResults) -> None:
    found = rc.compare(
        race.trials(), draws="independent", scores="own", common_draws="yes", budget=3
    )
    expected = summary_data(Analysis(Summary(race)))
    numbers = ("method", "category", "mean", "low", "high", "effective_n", "weakness")
    rows = [[row[key] for key in numbers] for row in found["results"]]
    primary = (row for row in expected["results"] if row["metric"] == PRIMARY)
    assert rows == [[row[key] for key in numbers] for row in primary]


def test_retrainings_after_a_race_are_those_without_one(vectors: str, tmp_path: Path) -> None:
    folders = (tmp_path / name for name in ("race", "whole"))
    races = ([0.8], [])
    first, second = (
        scores(worked(raced(vectors, ["aggregate"], trials=6, race=stops, retrain_best=5), folder))
        for stops, folder in zip(races, folders, strict=True)
    )
    both = first.keys() & second.keys()
    assert len(both) == 4, "one of the best was stopped"
    places = ([list(each).index(key) for key in sorted(both)] for each in (first, second))
    assert next(places) != next(places), "and another one has another rank"
    assert {key: first[key] for key in both} == {key: second[key] for key in both}


def test_a_race_that_grows_ends_like_a_larger_one(
    vectors: str, race: ExperimentResults, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = {"trials": 6, "retrain": "none"}
    worked(raced(vectors, **smaller), tmp_path)
    grown = worked(raced(vectors, retrain="none"), tmp_path)
    told = capsys.readouterr().out
    assert "normalized_softmax: rung 1, trial 7: " in told
    assert "normalized_softmax: rung 2, race complete, 5 of 5 in " in told
    assert trial_name("race", {"search": 0, "trial_index": 6}) == "rung 1, trial 7"
    assert scores(grown) == scores(race)
    for trial, other in zip(trials(grown), trials(race), strict=True):
        assert (trial.value, trial.stopped_after) == (other.value, other.stopped_after)


def test_an_unfinished_race_has_neither_values_nor_a_verdict_and_continues(
    vectors: str, race: ExperimentResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are lost meanwhile are trained again."""
    recorded = Spied(raced(vectors, retrain="none"), tmp_path)
    search, take, ended, lost = TrialRunner._search, TrialRunner._own_networks, [], []

    def stop(runner: TrialRunner, trial: Any) -> Any:
        ended.append(trial.stage)
        if len(ended) == 8 + 3:
            raise RuntimeError("the disk is full")
        return search(runner, trial)

    def lose(runner: TrialRunner, trial: Any, found: TrialRecord) -> Any:
        if not lost:
            lost.extend((tmp_path / trial.method.name / "search").rglob("fold_1/model.pt"))
            for file in lost:
                file.unlink()
        return take(runner, trial, found)

    monkeypatch.setattr(TrialRunner, "_search", stop)
    monkeypatch.setattr(TrialRunner, "_own_networks", lose)
    with pytest.raises(WorkFailed, match="race: RuntimeError: the disk is full"):
        recorded.work()
    results = collect(recorded)
    states = Counter((t.state, t.stopped_after, t.value is None) for t in trials(results))
    # Two trials were stopped, and one failed on its second fold; the others go on.
    assert states == {
        ("complete", 1, True): 2,
        ("failed", None, True): 1,
        ("running", None, True): 5,
    }
    assert Summary(results).comparisons("aggregate") == ()
    recorded.clear_failures()
    recorded.work()
    assert scores(collect(recorded)) == scores(race)
    assert len(lost) == 5


def test_a_trial_that_diverges_after_its_first_fold_counts_with_nothing() -> None:
    first = TrialRecord(3, "complete", 0.5, fold_values=[0.5], fold_epochs=[2])
    sound = TrialRecord(3, "complete", 0.7, fold_values=[0.6, 0.8], fold_epochs=[3, 4])
    diverged = TrialRecord(3, "complete", 0.0, diverged="the loss became nan in epoch 1")
    whole = joined([first, sound], [[0], [1, 2]])
    assert (whole.value, whole.fold_epochs, whole.diverged) == (
        pytest.approx(1.9 / 3),
        [2, 3, 4],
        None,
    )
    ended = joined([first, diverged], [[0], [1, 2]])
    assert (ended.value, ended.diverged) == (0.0, diverged.diverged)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"race": [0.5, 0.75]}, "a trial that has stopped does not continue"),
        (
            {"race": [0.9, 0.9, 0.9]},
            r"has 3 fractions, .* at most 2; write search.race: \[0.9, 0.9\]",
        ),
        ({"race": [0.5]}, r"leaves 4 of 8 trials, .* write race: \[0.63\], or race: \[\]"),
        ({"race": [0.7], "retrain_best": 8}, "at most 6"),
        ({"race": [1.5]}, "less than or equal to 1"),
        ({"retrain": "all"}, "'best' or 'none'"),
    ],
)
def test_bad_races(vectors: str, search: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        raced(vectors, **search)


def test_own_networks_are_scored_once() -> None:
    search = {"kind": "subsets", "retrain": "none"}
    with pytest.raises(UsageError, match="write reproductions: 1"):
        compose(
            {
                "name": "own",
                "dataset": "glyphs",
                "model": "conv4",
                "protocol": {"base": "mlrc", "search": search},
                "methods": ["contrastive"],
            }
        )
