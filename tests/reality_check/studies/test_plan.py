"""The plan of an experiment, with records that are written by hand: nothing is trained."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from support.examples import examples
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.config.method import Start
from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.config.search import Search
from reality_check.config.values import Range, dump_value
from reality_check.results import TrialRecord
from reality_check.studies.plan import (
    States,
    Step,
    StudyKey,
    StudyRecord,
    StudyState,
    Unit,
    final_epochs,
    make_plan,
    next_units,
)
from reality_check.utils.seeds import derive


@pytest.mark.parametrize(
    ("totals", "follow_ups", "step", "expected"),
    [
        # Section 6: totals averaging 37.2 give 40, follow-ups averaging 11.4 give 15, so 25 + 15.
        ([35, 36, 37, 38, 40], [10, 11, 12, 12, 12], 5, (25, 15)),
        ([40, 40], [15, 15], 5, (25, 15)),
        ([41, 40], [0, 0], 5, (45, 0)),
        ([3, 3], [3, 3], 5, (0, 5)),
        ([3, 4], [2, 3], 5, (5, 5)),  # the first phase is not rounded away
        ([7, 8], [2, 3], 1, (5, 3)),
        ([], [], 5, (5, 0)),
    ],
)
def test_final_epochs(
    totals: list[int], follow_ups: list[int], step: int, expected: tuple[int, int]
) -> None:
    assert final_epochs(totals, follow_ups, step) == expected


@pytest.mark.parametrize("seed", [3, 4])
def test_studies_draw_from_seeds_of_their_own_that_follow_from_the_experiments(
    seed: int,
) -> None:
    experiment = load_experiment(TINY, [f"seed={seed}"])
    seeds = {study.key.name: study.seed for study in make_plan(experiment)}
    (method,) = experiment.methods
    assert {f"{method.name}/search", "baselines"} <= seeds.keys()
    assert seeds == {name: derive(seed, name) for name in seeds}


# -- random experiments, workers and kills --------------------------------------------------------


_SPACE: dict[str, Any] = {"x": Range(low=0.0, high=1.0)}


class Records:
    """What a storage would hold, in memory; results depend only on the study, trial and parameters.

    ``diverges`` is the share of trials of searches that diverge.
    """

    def __init__(
        self, experiment: Experiment, diverges: float = 0.0, earlier_version: bool = False
    ) -> None:
        self.experiment, self._diverges = experiment, diverges
        self._about = {} if earlier_version else {"seeds_by_trial": True}
        self._seed_keys: dict[tuple[StudyKey, int], list[Any]] = {}
        self._steps: list[Step] = []
        self._attempts: dict[StudyKey, list[TrialRecord]] = {}

    def states(self) -> States:
        return States(make_plan(self.experiment, self._steps), self.read)

    def grow(self, larger: Experiment) -> None:
        protocol = self.experiment.protocol
        step = Step(0.0, {}, protocol.search.settings, protocol.reproductions)
        self._steps, self.experiment = [*self._steps, step], larger

    def read(self, key: StudyKey) -> StudyRecord | None:
        if key not in self._attempts:
            return None
        space = {name: dump_value(value) for name, value in _SPACE.items()}
        about = {"space": space, **self._about}
        return StudyRecord(tuple(self._attempts[key]), {"about": about})

    def claim(self, unit: Unit) -> tuple[StudyKey, int]:
        """Begin a trial; return what identifies the attempt."""
        study, index = unit.study, unit.trial_index
        attempts = self._attempts.setdefault(study.planned.key, [])
        made_of = json.loads(json.dumps(study.made_of or ()))[index : index + 1]
        number = len(attempts)
        self._seed_keys[study.planned.key, number] = study.seed_key(index)
        params = self._draw(study, index) if study.given is None else {}
        attempts.append(
            TrialRecord(
                index,
                "running",
                params=params,
                number=number,
                made_of=made_of[0] if made_of else None,
            )
        )
        return study.planned.key, number

    def _draw(self, study: StudyState, index: int) -> dict[str, Any]:
        if index == 0 and study.first is not None:
            return dict(study.first)
        draw = random.Random(derive(study.planned.seed, index))
        return {"x": draw.random()}

    def end(self, attempt: tuple[StudyKey, int], state: str) -> None:
        """Complete an attempt, or lose its worker."""
        key, number = attempt
        trial = self._attempts[key][number]
        draw = random.Random(derive(0, *key, trial.trial_index, repr(trial.params)))
        diverged = key.stage in (Stage.SEARCH, Stage.RACE) and draw.random() < self._diverges
        value = draw.random()
        self._attempts[key][number] = dataclasses.replace(
            trial,
            state=state,
            value=None if state == "failed" else 0.0 if diverged else value,
            fold_values=[] if diverged or state == "failed" else [value] * 4,
            diverged="nan" if diverged else None,
            fold_epochs=[draw.randrange(1, 9) for _ in range(2)],
            follow_up_epochs=[0, 0],
        )

    def done(self) -> dict[tuple[StudyKey, int], Any]:
        """The complete trials, with the parameters and seeds that they were trained with."""
        return {
            (study.planned.key, index): (
                trial.params if study.given is None else study.given[index],
                self._seed_keys[study.planned.key, trial.number],
            )
            for study in self.states().ready()
            for index, trial in study.complete.items()
        }


def made(search: dict[str, Any], **protocol: Any) -> Experiment:
    tiny = _tiny()
    update = {"search": TypeAdapter(Search).validate_python(search), **protocol}
    return tiny.model_copy(update={"protocol": tiny.protocol.model_copy(update=update)})


@functools.cache
def _tiny() -> Experiment:
    return load_experiment(TINY, ["methods=[contrastive,triplet_margin,normalized_softmax]"])


@st.composite
def growing(draw: st.DrawFn) -> tuple[Experiment, Experiment]:
    """An experiment, and the same or a larger one."""
    kind = draw(st.sampled_from(["one", "repeated", "subsets"]))
    search: dict[str, Any] = {"kind": kind, "trials": draw(st.integers(3, 6))}
    if kind == "repeated":
        search["repeats"] = draw(st.integers(2, 3))
    races = [[], [0.8], [1.0, 0.8], [0.9, 0.8, 0.8]]
    if kind == "subsets":
        search["race"] = draw(st.sampled_from(races))
        search["budget"] = draw(st.integers(2 if search["race"] else 1, 3))
        search["retrain"] = draw(st.sampled_from(["best", "none"]))
    categories = draw(st.sampled_from([["aggregate"], ["complete"], ["ensemble", "complete"]]))
    small = {"reproductions": draw(st.integers(1, 2)), "final_metrics": []}
    large = {
        "reproductions": small["reproductions"] + draw(st.integers(0, 1)),
        "final_metrics": draw(st.sampled_from([[], ["recall_at_2"]])),
    }
    more = {"trials": search["trials"] + draw(st.integers(0, 2))}
    return (
        made(search, categories=categories, **small),
        made(search | more, categories=categories, **large),
    )


def work(records: Records, workers: int, draw: random.Random, kills: float, most: float) -> None:
    """Work with simulated workers in a random order until nothing, or ``most`` trials, is left."""
    running: list[tuple[StudyKey, int]] = []
    claimed = 0
    while True:
        unit = next(next_units(records.states()), None) if claimed < most else None
        if unit is not None and len(running) < workers and draw.random() < 0.7:
            running.append(records.claim(unit))
            claimed += 1
        elif running:
            attempt = running.pop(draw.randrange(len(running)))
            records.end(attempt, "failed" if draw.random() < kills else "complete")
        elif unit is None:
            return


@examples(30)
@given(
    experiments=growing(),
    workers=st.integers(1, 8),
    seed=st.integers(0, 10**6),
    kills=st.sampled_from([0.0, 0.3]),
    diverges=st.sampled_from([0.0, 0.4, 1.0]),
    most=st.integers(0, 60),
)
def test_the_units_done_are_those_of_one_worker(
    experiments: tuple[Experiment, Experiment],
    workers: int,
    seed: int,
    kills: float,
    diverges: float,
    most: int,
) -> None:
    small, large = experiments
    alone, many = Records(small, diverges), Records(small, diverges)
    draw = random.Random(seed)
    work(alone, 1, draw, 0.0, math.inf)
    work(many, workers, draw, kills, most)
    for records, count in ((alone, 1), (many, workers)):
        records.grow(large)
        work(records, count, draw, kills if count > 1 else 0.0, math.inf)
        assert records.states().is_complete()
        assert next(next_units(records.states()), None) is None
    assert many.done() == alone.done()
    for study in many.states().ready():
        current = [t for t in study.attempts if t.state == "complete" and not t.superseded]
        counts = Counter(trial.trial_index for trial in current)
        # Trials of a race that others have overtaken since then are not counted.
        done_once = Counter({index: counts[index] for index in study.indices})
        assert done_once == Counter(study.indices), "none twice, none lost"
        keys = [study.seed_key(index) for index in study.indices]
        assert [key for _, key in map(many.done().get, _units(study))] == keys
        assert len(set(map(str, keys))) == len(keys), "each training has fresh seeds"


def _units(study: StudyState) -> list[tuple[StudyKey, int]]:
    return [(study.planned.key, index) for index in study.indices]


@pytest.mark.parametrize("earlier_version", [False, True])
def test_seeds_and_epochs_of_retrainings_belong_to_the_retrained_trials(
    earlier_version: bool,
) -> None:
    search = {"kind": "subsets", "trials": 4, "budget": 2, "retrain_best": 4}
    experiment = made(search, categories=["complete", "ensemble"], reproductions=2)
    records = Records(experiment, earlier_version=earlier_version)
    work(records, 1, random.Random(0), 0.0, math.inf)
    for method in ("contrastive", "triplet_margin"):
        study = records.states().get(StudyKey(method, Stage.REPRODUCTIONS))
        trials = records.states().get(StudyKey(method, Stage.SEARCH))
        assert study is not None
        assert trials is not None
        ranked = sorted(trials.complete, key=lambda index: -(trials.complete[index].value or 0))
        by_trial = [["reproductions", 0, trial, run] for trial in ranked for run in (0, 1)]
        by_index = [["reproductions", index] for index in range(8)]
        assert ranked != [0, 1, 2, 3]
        keys = [study.seed_key(index) for index in range(8)]
        assert keys == (by_index if earlier_version else by_trial)
        final = records.states().begun()[StudyKey(method, Stage.FINAL)].given or ()
        runs = [study.complete[index].fold_epochs for index in range(8)]
        mean = [sum(runs[i] + runs[i + 1]) / 4 for i in range(0, 8, 2)]
        assert [(params or {})["epochs"] for params in final[::2]] == [*map(math.ceil, mean)]


def test_a_rung_trains_its_share_of_the_best_trials() -> None:
    records = Records(made({"kind": "subsets", "trials": 5, "budget": 3, "race": [0.8]}))
    work(records, 1, random.Random(0), 0.0, math.inf)
    studies = records.states().begun()
    trials = studies[StudyKey("contrastive", Stage.SEARCH)].complete
    worst = min(trials, key=lambda index: trials[index].value or 0)
    raced = studies[StudyKey("contrastive", Stage.RACE)].indices
    assert sorted([*raced, worst]) == list(range(5))


def test_a_search_waits_for_the_winner_that_it_starts_from() -> None:
    tiny = _tiny()
    first, second, _ = tiny.methods
    start = {"starts_from": Start(method=second.name, neutral={"y": 1})}
    methods = (first.model_copy(update=start), second)
    records = Records(tiny.model_copy(update={"methods": methods}))
    search, winner = (StudyKey(method.name, Stage.SEARCH) for method in methods)
    assert records.states().get(search) is None
    work(records, 1, random.Random(0), 0.0, math.inf)
    studies = records.states().begun()
    assert (best := studies[winner].best) is not None
    assert studies[search].complete[0].params == {"y": 1, **best.params}


def test_a_trial_that_waits_may_be_claimed() -> None:
    records = Records(_tiny())
    attempt = records.claim(next(next_units(records.states())))
    records.end(attempt, "waiting")
    assert records.states().begun()[attempt[0]].free == [0, 1]


def test_a_complete_study_is_read_once() -> None:
    experiment = _tiny()
    records, read, complete = Records(experiment), Counter[StudyKey](), {}
    work(records, 1, random.Random(0), 0.0, math.inf)

    def counted(key: StudyKey) -> StudyRecord | None:
        read[key] += 1
        return records.read(key)

    for _ in range(2):
        assert States(make_plan(experiment), counted, complete).is_complete()
    assert {*read.values()} == {1}
