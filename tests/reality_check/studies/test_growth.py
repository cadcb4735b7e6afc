"""What of two experiments is growth, and which reproductions it leaves their numbers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
import pytest
from support.recorded_runs import experiment as recorded
from support.recorded_runs import record
from support.studies import complete, is_complete, open_study

from reality_check.config import Experiment, compose
from reality_check.launch.open_folder import _record_growth
from reality_check.launch.worker import work
from reality_check.studies.attempts import best_trial
from reality_check.studies.growth import (
    describe_changes,
    read_steps,
    record_step,
    without_growth,
)
from reality_check.studies.output_folder import check_same_experiment, growth, lock_experiment
from reality_check.studies.plan import reproduction_order
from reality_check.studies.recorded_experiment import RecordedExperiment, read_experiment
from reality_check.studies.study import Study
from reality_check.studies.trial import TrialContext, TrialResult, set_attributes
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import USAGE

REPEATED = "protocol.search.kind=repeated", "protocol.search.repeats=2"


def experiment(*overrides: str, **changes: Any) -> Experiment:
    raw = {
        "name": "small",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": "quick_one_search",
        "methods": ["contrastive", "normalized_softmax"],
        "code": {"dataset": "1", "mine.Loss": "2"},
    }
    return compose({**raw, **changes}, ["protocol.search.trials=4", *overrides])


def changes_of(one: Experiment, other: Experiment) -> dict[str, tuple[Any, Any]] | None:
    """In what the second one is larger; ``None`` if it is another one."""
    there, ours = one.plain(), other.plain()
    plain, changes = without_growth(there, ours)
    return changes if plain == there else None


@pytest.mark.parametrize(
    ("overrides", "key", "text"),
    [
        (["protocol.reproductions=9"], "protocol.reproductions", "from 2 to 9"),
        ([*REPEATED], "protocol.search.repeats", "from 1 to 2"),
        (["protocol.final_metrics=[NMI,AMI]"], "protocol.final_metrics", "+ NMI, AMI"),
        (["controls=[contrastive]"], "controls", "+ contrastive, methods + contrastive_control"),
        (
            ["methods=[warped_softmax,normalized_softmax,contrastive]"],
            "methods",
            "+ warped_softmax",
        ),
    ],
)
def test_more_is_growth_and_less_is_not(overrides: list[str], key: str, text: str) -> None:
    small, large = (
        experiment("protocol.reproductions=2"),
        experiment("protocol.reproductions=2", *overrides),
    )
    changes = changes_of(small, large)
    assert changes is not None
    assert key in changes
    assert f"{key} {text}" in describe_changes(changes)
    assert changes_of(large, small) is None
    assert changes_of(large, large) == {}
    assert changes_of(small, large.model_copy(update={"seed": 3})) is None


def subsets(**keys: int) -> Experiment:
    search = json.dumps({"kind": "subsets", "trials": 20, **keys})
    return experiment(f"protocol.search={search}")


@pytest.mark.parametrize(
    ("small", "large", "grown"),
    [
        (subsets(budget=5), subsets(budget=5, retrain_best=14), {"retrain_best": (10, 14)}),
        (
            subsets(budget=5),
            subsets(budget=5, trials=30),
            {"trials": (20, 30), "retrain_best": (10, 16)},
        ),
        (subsets(budget=5), subsets(budget=6), None),
        (experiment("protocol.search.sampler=random"), subsets(), None),
        (subsets(), experiment(*REPEATED), None),
        (
            experiment("protocol.search.trials=3"),
            experiment(*REPEATED, "protocol.search.trials=5"),
            {"trials": (3, 5), "repeats": (1, 2)},
        ),
        (experiment(), experiment(*REPEATED, "protocol.search.startup_trials=1"), None),
        (experiment(), experiment(REPEATED[0], "protocol.search.repeats=1"), {}),
    ],
)
def test_growth_by_kind(
    small: Experiment, large: Experiment, grown: dict[str, tuple[int, int]] | None
) -> None:
    found = changes_of(small, large)
    assert found == (grown and {f"protocol.search.{key}": pair for key, pair in grown.items()})
    if grown:
        assert changes_of(large, small) is None


def test_a_folder_from_before_searches_had_kinds_grows(tmp_path: Path) -> None:
    lock_experiment(experiment(), tmp_path)
    file = tmp_path / "experiment.yaml"
    text = file.read_text()
    assert "    kind: one\n" in text
    flat = "    repeats: 1\n    budget: null\n    retrain_best: null\n"
    file.write_text(text.replace("    kind: one\n", flat))
    assert check_same_experiment(experiment(), tmp_path)
    assert growth(experiment(*REPEATED), tmp_path) == {"protocol.search.repeats": (1, 2)}


def test_a_new_method_may_bring_its_code_and_weights() -> None:
    small = experiment(code={"dataset": "1", "mine.Loss": "2", "pretrained weights": "a"})
    methods = ["contrastive", "normalized_softmax", "warped_softmax"]
    code = {"dataset": "1", "mine.Loss": "2", "mine.New": "3", "pretrained weights": "a, b"}
    large = experiment(methods=methods, code=code)
    assert set(changes_of(small, large) or ()) == {"methods"}
    for name in ("dataset", "mine.Loss", "pretrained weights"):
        assert changes_of(small, experiment(methods=methods, code={**code, name: "4"})) is None
    # Without a new method, a new class belongs to one that is there.
    assert changes_of(small, experiment(code=code)) is None


TPE = "protocol.search.sampler=tpe", "protocol.search.startup_trials=1"


@pytest.mark.parametrize(
    ("before", "more", "refused"),
    [
        (TPE, "protocol.search.trials=3", True),
        (TPE, "protocol.search={kind: repeated, trials: 2, startup_trials: 1}", True),
        (TPE, "controls=[normalized_softmax]", True),
        (TPE, "protocol.reproductions=3", False),
        (("protocol.search.sampler=qmc",), "protocol.search.trials=3", False),
    ],
)
def test_a_search_by_a_model_grows_with_the_optuna_that_it_began_with(
    before: tuple[str, ...],
    more: str,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(recorded(*before), tmp_path)
    monkeypatch.setattr(optuna, "__version__", "99.0")
    words = rf"began with Optuna {version('optuna')}, but 99.0 .* pip install optuna=="
    with pytest.raises(UsageError, match=words) if refused else nullcontext():
        _record_growth(recorded(*before, more), tmp_path, lambda text: None)
    assert (tmp_path / "steps.json").exists() != refused


def test_a_worker_with_another_optuna_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recorded(*TPE, "protocol.search.trials=3"), tmp_path, until=1)
    monkeypatch.setattr(optuna, "__version__", "99.0")
    assert work(tmp_path, 0) == USAGE
    assert "but 99.0 is installed, whose sampler tpe draws other" in capsys.readouterr().err
    studies = read_experiment(tmp_path).states().begun().values()
    assert [study.failure for study in studies if study.failure] == []


def test_trials_by_parameter_grow_with_the_trials_of_every_method() -> None:
    small, large = (experiment(f"protocol.search.trials_per_parameter={n}") for n in (2, 3))
    counted = [
        one.model_copy(
            update={"methods": [m.model_copy(update={"trials": n}) for m in one.methods]}
        )
        for one, n in ((small, 6), (large, 9))
    ]
    assert changes_of(*counted) == {"protocol.search.trials_per_parameter": (2, 3)}


@pytest.mark.parametrize(
    ("sampler", "startup", "trials", "larger", "alike"),
    [
        ("random", 1, 4, 3, True),
        ("tpe", 2, 4, 2, True),
        ("tpe", 2, 4, 3, False),
        ("tpe", 4, 4, 8, True),  # all of them were drawn at random, and would be now
        ("tpe", 4, 4, 3, False),
    ],
)
def test_the_trials_that_there_are_must_be_drawn_as_they_were(
    sampler: str, startup: int, trials: int, larger: int, alike: bool
) -> None:
    given = [f"protocol.search.sampler={sampler}"]
    small = experiment(*given, f"protocol.search.startup_trials={startup}")
    large = experiment(
        *given, "protocol.search.trials=8", f"protocol.search.startup_trials={larger}"
    )
    assert small.protocol.search.trials == trials
    assert (changes_of(small, large) is not None) == alike


def test_numbers_of_reproductions_stay(tmp_path: Path) -> None:
    one = experiment(*REPEATED, "protocol.reproductions=1")
    assert reproduction_order(one, []) == [(0, 0), (1, 0)]
    record_step(one, {"protocol.reproductions": (1, 2)}, {}, tmp_path)
    two = experiment(*REPEATED, "protocol.reproductions=2")
    assert reproduction_order(two, read_steps(tmp_path)) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    # Killed before the larger one was locked, and called again.
    record_step(one, {"protocol.reproductions": (1, 2)}, {}, tmp_path)
    record_step(two, {"protocol.search.repeats": (2, 3)}, {"a": {"search": 1}}, tmp_path)
    three = experiment(*REPEATED, "protocol.search.repeats=3", "protocol.reproductions=2")
    steps = read_steps(tmp_path)
    assert [(step.settings, step.reproductions) for step in steps] == [(2, 1), (2, 2)]
    assert reproduction_order(three, steps) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert reproduction_order(three, []) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_the_folder_tells_what_grows(tmp_path: Path) -> None:
    assert growth(experiment(), tmp_path) == {}
    lock_experiment(experiment(), tmp_path)
    assert growth(experiment(), tmp_path) == {}
    larger = experiment("protocol.search.trials=9")
    assert growth(larger, tmp_path) == {"protocol.search.trials": (4, 9)}
    assert check_same_experiment(larger, tmp_path)
    with pytest.raises(UsageError, match=r"trials is 4 there and 3 here.*may be more than there"):
        check_same_experiment(experiment("protocol.search.trials=3"), tmp_path)


def made(storage: Any, made_of: list[Any]) -> Study:
    fixed: list[dict[str, Any]] = [{} for _ in made_of]
    return open_study(storage, "s", len(made_of), 0, fixed=fixed, made_of=made_of)


def test_what_was_made_of_something_else_is_made_again(tmp_path: Path) -> None:
    """And it counts no more, but its record and its hours stay."""
    recorded = RecordedExperiment(experiment(), tmp_path)
    done: list[int] = []

    def work(context: TrialContext) -> TrialResult:
        done.append(context.trial_index)
        return TrialResult(float(len(done)), {"seconds": 3600.0})

    def finish(study: Study) -> dict[int, float | None]:
        while study.work_once(work):
            pass
        return {index: trial.value for index, trial in complete(study).items()}

    assert finish(made(recorded.storage, [{"a": 1}, {"b": (1, 2)}])) == {0: 1.0, 1: 2.0}
    again = made(recorded.storage, [{"a": 1}, {"b": (1, 2)}, {"c": 1}])
    assert finish(again) == {0: 1.0, 1: 2.0, 2: 3.0}
    assert done == [0, 1, 2]
    changed = made(recorded.storage, [{"a": 1}, {"b": (1, 3)}, {"c": 1}])
    assert not is_complete(changed)
    assert finish(changed) == {0: 1.0, 1: 4.0, 2: 3.0}
    assert best_trial(complete(changed)) is not None
    assert [trial.superseded for trial in changed.trials()] == [False, True, False, False]
    assert len(changed.trials()) == 4
    with pytest.raises(TypeError, match="superseded"):
        set_attributes(None, superseded=True)
