"""The verdict on trials that were made elsewhere: that of a run, or a sentence why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from reality_check import UsageError, compare
from reality_check.cli.main import main
from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.render.summary_json import summary_data
from reality_check.report.summary import Summary
from reality_check.report.tables import trials_csv
from reality_check.results import ExperimentResults, MethodResults, ResultRow, TrialRecord

Rows = list[dict[str, Any]]
GIVEN = {"draws": "independent", "scores": "own", "common_draws": "yes"}


def rows(trials: int = 12, searches: int = 1) -> Rows:
    """Trials of two methods, each with a test score of its own network."""
    draw = np.random.default_rng(0)
    return [
        {"method": method, "search": search, "trial": trial, "validation": v, "test": v - 0.1}
        for method in "ab"
        for search in range(searches)
        for trial, v in enumerate(draw.uniform(0.3, 0.6, trials).round(4))
    ]


def changed(table: Rows, *numbers: int, **cells: Any) -> Rows:
    return [row | cells if number in numbers else row for number, row in enumerate(table)]


def run(trials: int, searches: int, retrained: int) -> ExperimentResults:
    """A run of three methods, two of which share their parameters; a trial of each diverged."""
    draw, methods, results = np.random.default_rng(1), [], []
    for name, parameters in {"a": ("lr",), "b": ("lr",), "c": ("lr", "alpha", "beta")}.items():
        records = [
            TrialRecord(
                trial,
                "complete",
                draw.uniform(0.3, 0.5) if trial else 0.0,
                {key: draw.uniform() for key in parameters},
                search=search,
                diverged=None if trial else "NaN",
            )
            for search in range(searches)
            for trial in range(trials)
        ]
        runs = []
        for search in range(searches):
            ranked = sorted(records[search * trials :][:trials], key=lambda t: -(t.value or 0.0))
            for best in ranked[:retrained] * (2 if searches > 1 else 1):
                runs.append(
                    TrialRecord(
                        len(runs), "complete", 0.4, best.params, search=search,
                        retrained=best.trial_index,
                    )
                )  # fmt: skip
        methods.append(
            MethodResults(name, "", tuple(records), tuple(runs), searched=tuple(parameters))
        )
        for each in runs:
            for category in ("aggregate", "ensemble"):
                results.append(
                    ResultRow(
                        "", name, category, each.trial_index or 0, PRIMARY,
                        draw.uniform(0.2, 0.4), each.search, each.retrained,
                    )
                )  # fmt: skip
    search = {"trials": trials, "budget": None if searches > 1 else 5}
    config = {"protocol": {"search": search}}
    return ExperimentResults("", "p", "p", True, tuple(methods), tuple(results), config=config)


@pytest.mark.parametrize(("trials", "searches", "retrained"), [(16, 1, 9), (3, 12, 1)])
def test_trials_csv_gives_the_numbers_of_its_run(
    trials: int, searches: int, retrained: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = run(trials, searches, retrained)
    (tmp_path / "trials.csv").write_text(trials_csv(results), encoding="utf-8")
    command = f"compare {tmp_path / 'trials.csv'} --scores retrained --common-draws yes --json"
    draws = ["adaptive"] if searches > 1 else ["independent", "--budget", "5"]
    assert main([*command.split(), "--metric", "MAP@R", "--draws", *draws]) == 0
    table, of_run = json.loads(capsys.readouterr().out), summary_data(Analysis(Summary(results)))
    for data in (table, of_run):
        for each in data["results"]:
            del each["runs"]  # in the table, a trial that diverged counts as one
    for key in ("results", "verdicts", "budget_curves", "verdict", "basis"):
        assert table[key] == of_run[key]
    assert len(table["verdicts"]) == 6
    assert len({pair["p"] for pair in table["verdicts"]}) == 6


@pytest.mark.parametrize(
    ("table", "answers", "sentence"),
    [
        (rows(), {"draws": None}, "--draws independent .* got draws None"),
        (rows(), {"scores": "new"}, "got scores new"),
        (rows(), {"common_draws": None}, "got common draws None"),
        (rows(), {"draws": "adaptive"}, "a method has one search, which shows what it found"),
        (rows(searches=3)[:48], {}, "a method has one search.* other methods"),
        (rows(searches=3)[:-1], {}, "equally many trials.* 11 to 12"),
        (rows(searches=3), {"budget": 5}, "--budget is 5"),
        (rows(), {"budget": 6}, "a search of 6 of the 12 trials of a .* --budget 4"),
        (rows(2), {}, "fewer than 3 effective trials"),
        (changed(rows(), 2, 5, 7, test=""), {}, "of all searches of 4 trials of a are won by"),
        (changed(rows(), *range(24), test=""), {}, "the best trial of a search of . has no test"),
        (changed(rows(searches=3), *range(12), test=None), {}, "a search of a has no test score"),
        (changed(rows(), 3, validation="nan"), {}, "of a is of a trial without a validation"),
        (changed(rows(), 3, validation="good"), {}, "numbers as scores: .*'good'"),
        (changed(rows(), 3, method=""), {}, "every row needs a method"),
        (changed(rows(), 3, test=1234), {}, "fractions or percent, got 1234"),
        (rows() + rows(), {}, "trial 0 of a is twice in the table"),
        ([*rows(), {"method": "a", "search": 0, "trial": 1, "test": 1}], {}, "--scores retrained"),
        (rows(), {"columns": {"test": "accuracy"}}, "there is no column 'accuracy', but method,"),
        (rows(), {"columns": {"test": "validation"}}, "that they chose"),
        ([], {}, "no trials"),
        ("none.csv", {}, "none.csv cannot be read"),
    ],
)  # fmt: skip
def test_what_allows_no_estimate_is_refused(
    table: Any, answers: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        compare(table, **GIVEN | answers)


def test_percent_and_losses_are_the_same_as_fractions_and_scores() -> None:
    other = [
        {"name": r["method"], "k": r["trial"], "loss": -r["validation"], "acc": 100 * r["test"]}
        for r in rows()
    ]
    columns = {"method": "name", "trial": "k", "validation": "-loss", "test": "acc"}
    found = compare(other, columns=columns, **GIVEN)["results"]
    for ours, theirs in zip(compare(rows(), **GIVEN)["results"], found, strict=True):
        assert theirs["mean"] == pytest.approx(ours["mean"])


def test_draws_pair_trials_whatever_their_order() -> None:
    drawn = [row | {"draw": f"d{row['trial']}"} for row in rows()]
    named = [row | {"trial": f"{row['method']}{row['trial']}"} for row in drawn]
    expected = compare(rows(), **GIVEN)["verdicts"]
    found = compare(named[:12] + named[:11:-1], **GIVEN | {"common_draws": None})["verdicts"]
    assert found[0]["p"] == pytest.approx(expected[0]["p"])
    apart = compare(rows(), **GIVEN | {"common_draws": "no"})["verdicts"]
    assert apart[0]["p"] != pytest.approx(expected[0]["p"])


def test_optuna_studies_are_read_with_their_direction_and_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, draw = f"sqlite:///{tmp_path / 'sweep.db'}", np.random.default_rng(0)
    for name in ("adam", "sgd"):
        study = optuna.create_study(study_name=name, storage=url)
        for loss in draw.uniform(size=9):
            lr = optuna.distributions.FloatDistribution(0, 1)
            attributes = {"test_accuracy": 1 - loss}
            study.add_trial(
                optuna.create_trial(
                    value=loss, params={"lr": loss}, distributions={"lr": lr},
                    user_attrs=attributes,
                )
            )  # fmt: skip
        study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.FAIL))
    words = "--draws independent --scores own --common-draws no --columns test=test_accuracy"
    page = tmp_path / "page.html"
    command = ["compare", "adam,slow=sgd", "--optuna", url, *words.split()]
    assert main([*command, "--html", str(page), "--metric", "accuracy"]) == 0
    text = capsys.readouterr().out
    assert "accuracy on the test data" in text
    assert "because you said so" in text
    assert "slow is" in text or "slow leads" in text or "from slow" in text or "above slow" in text
    assert "<svg" in page.read_text("utf-8")
    assert "MAP@R" not in text + page.read_text("utf-8")
    assert main(["compare", "adamw", "--optuna", url]) == 2
    assert "no study 'adamw'" in capsys.readouterr().err
    assert main(["compare", "adam", "--optuna", f"sqlite:///{tmp_path / 'none.db'}"]) == 2
    assert not (tmp_path / "none.db").exists()
