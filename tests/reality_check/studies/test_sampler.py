from __future__ import annotations

from typing import Any

import optuna
import pytest

from reality_check.config.search import OneSearch
from reality_check.studies.sampler import IndexedSampler, check_sampler, sampler_arguments
from reality_check.utils.errors import UsageError
from reality_check.utils.seeds import derive

TPE = {
    "n_startup_trials": 3,
    "n_ei_candidates": 24,
    "multivariate": True,
    "constant_liar": True,
}
GP = {"n_startup_trials": 3, "deterministic_objective": False}


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [("tpe", "TPESampler", TPE), ("gp", "GPSampler", GP), ("random", "RandomSampler", {})],
)
def test_each_trial_has_a_sampler_of_its_own_seed_with_all_that_is_recorded(
    kind: str, name: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    original = getattr(optuna.samplers, name)

    def make(seed: int, **keywords: Any) -> Any:
        made.append({"seed": seed, **keywords})
        return original(seed=seed, **keywords)

    monkeypatch.setattr(optuna.samplers, name, make)
    sampler = IndexedSampler(kind, 3, seed=5, draw_seed=6)
    study = optuna.create_study(sampler=sampler)
    for index in (7, 2):
        study.enqueue_trial({}, user_attrs={"trial_index": index})
        study.ask()
        assert made[-1] == {"seed": derive(5, "sampler", index) % 2**32, **arguments}
    assert sampler_arguments(kind, 3) == arguments


def ask(sampler: IndexedSampler, index: int) -> tuple[float, float]:
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial({}, user_attrs={"trial_index": index})
    trial = study.ask()
    return trial.suggest_float("a", 0, 1), trial.suggest_float("b", 0, 1)


def test_qmc_fills_the_square_evenly_and_a_trial_is_the_same_whenever_it_is_asked_for() -> None:
    sampler = IndexedSampler("qmc", 1, seed=5, draw_seed=6, parameter_names=("a", "b"))
    points = [ask(sampler, index) for index in range(16)]
    # Of any 16 points of a net in base 2 each of 16 boxes of equal size holds one.
    for columns, rows in ((4, 4), (16, 1), (1, 16), (2, 8)):
        boxes = {(int(a * columns), int(b * rows)) for a, b in points}
        assert len(boxes) == 16
    again = IndexedSampler("qmc", 1, seed=99, draw_seed=6, parameter_names=("a", "b"))
    assert ask(again, 11) == points[11]
    other = IndexedSampler("qmc", 1, seed=5, draw_seed=7, parameter_names=("a", "b"))
    assert ask(other, 11) != points[11]


@pytest.mark.parametrize(
    ("kind", "drawn"),
    [
        ("random", (0.20659746978924176, 0.2459858006489658)),
        ("qmc", (0.33589758910238743, 0.5841128658503294)),
    ],
)
def test_draws_without_a_model_are_the_same_in_every_version(
    kind: str, drawn: tuple[float, float]
) -> None:
    """Optuna 4.9 and 5.0, scipy 1.15 and 1.17 gave these."""
    sampler = IndexedSampler(kind, 1, seed=5, draw_seed=7, parameter_names=("a", "b"))
    assert ask(sampler, 11) == drawn


class Middle(optuna.samplers.RandomSampler):
    """A sampler of a user's own."""

    def __init__(self, seed: int, share: float = 0.5) -> None:
        super().__init__(seed)
        self.share = share

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        floats = optuna.distributions.FloatDistribution(0, 1)
        return {"a": floats, "b": floats}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return dict.fromkeys(search_space, self.share)


def test_a_sampler_of_ones_own_draws_after_the_start_up_trials() -> None:
    path = f"{__name__}.{Middle.__name__}"
    sampler = IndexedSampler(path, 2, seed=5, draw_seed=6, sampler_options={"share": 0.25})
    assert ask(sampler, 2) == (0.25, 0.25)
    assert 0.25 not in ask(sampler, 1)


def test_cma_es_learns_where_the_best_lies() -> None:
    pytest.importorskip("cmaes", reason="the package cmaes is not installed")
    study = optuna.create_study(sampler=IndexedSampler("cmaes", 4, seed=0, draw_seed=0))
    for index in range(60):
        study.enqueue_trial({}, user_attrs={"trial_index": index})
        trial = study.ask()
        a, b = trial.suggest_float("a", 0, 1), trial.suggest_float("b", 0, 1)
        study.tell(trial, (a - 0.7) ** 2 + (b - 0.2) ** 2)
    last = [trial.value for trial in study.trials[-10:]]
    assert max(last) < 0.02


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"sampler": "optuna.Study"}, "study_name"),
        ({"sampler": "collections.OrderedDict"}, "must be a subclass of optuna.samplers"),
        ({"sampler": "tpe", "sampler_arguments": {"gama": 1}}, "no argument 'gama'.*'gamma'"),
        ({"sampler": "tpe", "sampler_arguments": {"seed": 1}}, "'seed' is set by the harness"),
    ],
)
def test_what_is_no_sampler_is_refused(search: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_sampler(OneSearch(**search))
