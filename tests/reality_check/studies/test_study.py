from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import create_trial
from sqlalchemy.event import listen
from support.studies import complete, is_complete, open_study

from reality_check.config.values import Choices, Range, Searched
from reality_check.studies import study as search
from reality_check.studies.attempts import best_trial, complete_by_index
from reality_check.studies.storage import open_storage
from reality_check.studies.study import MAX_LOST, Study
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.lease import Lease
from reality_check.utils.processes import this_process

SPACE: dict[str, Searched] = {
    "arguments.margin": Range(low=0, high=1),
    "arguments.mode": Choices(choices=["a", "b", None]),
    "arguments.number": Range(low=2, high=9, int=True),
    "learning_rates.loss": Range(low=1e-6, high=1, log=True),
}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> RDBStorage:
    """One database for all tests; opening one takes long."""
    storage = open_storage(f"sqlite:///{tmp_path_factory.mktemp('storage') / 'studies.db'}")
    storage.engine.dispose()
    # Waiting for the disk at every commit is most of the time of these tests.
    listen(storage.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
    return storage


class Open:
    """Opens the stage of one test as one more worker would."""

    def __init__(self, storage: RDBStorage, name: str) -> None:
        self.storage = storage
        self.name = name

    def __call__(
        self, num_trials: int = 4, sampler: str = "random", name: str = "", **changes: Any
    ) -> Study:
        values = {"space": SPACE, "startup_trials": 3, "seed": 5, **changes}
        name = f"{self.name}{name}"
        return open_study(self.storage, name, num_trials, sampler=sampler, **values)


@pytest.fixture
def make_study(storage: RDBStorage, request: pytest.FixtureRequest) -> Open:
    return Open(storage, request.node.name)


def value_of(params: dict[str, Any]) -> float:
    """A made-up objective with a maximum inside the space."""
    return 1 - abs(params["arguments.margin"] - 0.3) - 0.01 * params["arguments.number"]


def work(attempt: TrialContext) -> TrialResult:
    return TrialResult(value_of(attempt.params), {"epochs": attempt.trial_index})


def finish(stage: Study, task: Callable[[TrialContext], TrialResult] = work) -> None:
    while stage.work_once(task):
        pass


def check_exact(stage: Study, num_trials: int) -> None:
    complete = Counter(trial.trial_index for trial in stage.trials() if trial.state == "complete")
    assert complete == Counter(range(num_trials))
    assert {trial.state for trial in stage.trials()} <= {"complete", "failed"}
    assert is_complete(stage)
    assert not stage.work_once(work)


@pytest.fixture(scope="module")
def dead_worker() -> dict[str, Any]:
    """What a worker of this machine that has ended left as its signature."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return {**this_process(), "pid": process.pid, "started": None}


def abandon(stage: Study, worker: dict[str, Any] | None, suggest: int = 99) -> None:
    """Claim a trial index and vanish: signed or not, after drawing some of the parameters."""
    assert stage._offer_trial()
    trial = stage.study.ask()
    if worker is not None:
        trial.set_user_attr("worker", worker)
    for name, value in list(stage.space.items())[:suggest]:
        search.suggest(trial, name, value)


# -- exactly one complete trial per trial index
# -------------------------------------------------------


def test_one_worker_does_every_trial_once(make_study: Open) -> None:
    stage = make_study(num_trials=3)
    seen: list[int] = []

    def note(attempt: TrialContext) -> TrialResult:
        seen.append(attempt.trial_index)
        return work(attempt)

    finish(stage, note)
    assert seen == [0, 1, 2]
    check_exact(stage, 3)
    for trial in stage.trials():
        assert trial.started is not None
        assert trial.ended is not None
        assert trial.started <= trial.ended
    assert [trial.epochs for trial in complete(stage).values()] == [0, 1, 2]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_workers_that_claim_while_others_work_share_indices(make_study: Open, depth: int) -> None:
    """Workers work inside one another, so that many trials are held at the same time."""
    stages = [make_study(num_trials=5) for _ in range(depth + 1)]
    held: list[int] = []

    def nested(level: int, attempt: TrialContext) -> TrialResult:
        assert attempt.trial_index not in held
        held.append(attempt.trial_index)
        if level < depth:
            stages[level + 1].work_once(lambda inner: nested(level + 1, inner))
        held.remove(attempt.trial_index)
        return work(attempt)

    while stages[0].work_once(lambda attempt: nested(0, attempt)):
        pass
    check_exact(stages[0], 5)


def test_a_worker_whose_waiting_trial_was_taken_stands_down(
    make_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between one worker's look and its claim, another claims and completes the trial index."""
    slow, fast = make_study(), make_study()
    offer = slow._offer_trial

    def offer_and_lose() -> bool:
        offered = offer()
        fast.work_once(work)
        return offered

    monkeypatch.setattr(slow, "_offer_trial", offer_and_lose)
    worked: list[int] = []

    def note(attempt: TrialContext) -> TrialResult:
        worked.append(attempt.trial_index)
        return work(attempt)

    for _ in range(20):
        slow.work_once(note)
    assert worked == [], "the slow worker always came too late"
    monkeypatch.undo()
    check_exact(fast, 4)
    assert best_trial(complete(fast)) is not None


@pytest.mark.parametrize("copies", [1, 3])
def test_an_index_enqueued_twice_is_done_once(
    make_study: Open, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers saw the same free trial index and both enqueued it."""
    stage = make_study(num_trials=3)
    offer = stage._offer_trial

    def offer_twice() -> bool:
        offered = offer()
        if offered:
            waiting = [t for t in stage.trials() if t.state == "waiting"]
            trial_index = waiting[0].trial_index
            for _ in range(copies):
                stage.study.enqueue_trial({}, user_attrs={"trial_index": trial_index})
        return offered

    monkeypatch.setattr(stage, "_offer_trial", offer_twice)
    for _ in range(3):
        stage.work_once(work)
    monkeypatch.undo()
    finish(stage)
    check_exact(stage, 3)
    taken = [trial for trial in stage.trials() if trial.duplicate]
    assert len(taken) == 3 * copies
    assert all(trial.state == "failed" for trial in taken)


# -- lost workers ------------------------------------------------------------------------------


def test_a_dead_workers_index_is_done_again_with_the_same_parameters(
    make_study: Open, dead_worker: dict[str, Any]
) -> None:
    stage = make_study()
    abandon(stage, dead_worker)
    lost = stage.trials()[0]
    assert lost.state == "running"
    finish(stage)
    check_exact(stage, 4)
    assert stage.trials()[0].state == "failed"
    assert complete(stage)[0].params == lost.params
    assert len(lost.params) == len(SPACE)


def test_a_retried_index_keeps_its_parameters_though_more_is_known(make_study: Open) -> None:
    stage = make_study(6, "tpe", startup_trials=1)
    for _ in range(3):
        stage.work_once(work)
    abandon(stage, this_process())
    finish(stage)
    assert list(complete(stage)) == [0, 1, 2, 4, 5]
    lost = next(trial for trial in stage.trials() if trial.state == "running")
    stage._fail_trial(lost)
    finish(stage)
    check_exact(stage, 6)
    assert complete(stage)[3].params == lost.params


def test_a_living_workers_index_is_left_alone(make_study: Open) -> None:
    stage = make_study(num_trials=2)
    abandon(stage, this_process())
    finish(stage)
    assert not is_complete(stage)
    assert list(complete(stage)) == [1]
    assert [trial.state for trial in stage.trials()] == ["running", "complete"]


def test_what_a_run_had_started_is_lost_where_nobody_else_works(make_study: Open) -> None:
    """With SQLite, after a restart of the machine."""
    stage = make_study(num_trials=3)
    stage.work_once(work)
    of_run = {"host": "elsewhere/1", "pid": 1, "started": 1, "of_run": True}
    abandon(stage, of_run)
    abandon(stage, of_run, suggest=0)
    lost = stage.trials()[1]
    stage.release_all()
    assert [trial.state for trial in stage.trials()] == ["complete", "failed", "failed"]
    finish(stage)
    check_exact(stage, 3)
    assert complete(stage)[1].params == lost.params


def test_an_unsigned_trial_is_lost_after_its_grace(
    make_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_study(num_trials=2)
    abandon(stage, None, suggest=0)
    monkeypatch.setattr(search, "UNSIGNED_GRACE", 1000.0)
    stage.work_once(work)
    assert list(complete(stage)) == [1]
    assert not stage.work_once(work), "another worker may be about to sign it"
    monkeypatch.setattr(search, "UNSIGNED_GRACE", 0.0)
    finish(stage)
    check_exact(stage, 2)


def test_an_index_that_always_loses_its_worker_stops_the_stage(
    make_study: Open, dead_worker: dict[str, Any]
) -> None:
    stage = make_study()
    for _ in range(MAX_LOST + 1):
        abandon(stage, dead_worker)
    params = stage.trials()[0].params
    assert all(trial.params == params for trial in stage.trials())
    message = f"trial 0: its worker was lost {MAX_LOST + 1} times"
    with pytest.raises(WorkFailed, match=message):
        stage.work_once(work)
    failure = stage.attribute("failure")
    assert failure is not None
    assert failure["message"].startswith("trial 0: ")
    assert not failure["usage"]
    again = make_study()
    again.clear_failures()
    assert again.attribute("failure") is None
    finish(again)
    check_exact(again, 4)
    assert complete(again)[0].params == params


def test_a_worker_whose_trial_was_ended_meanwhile_stands_down_quietly(make_study: Open) -> None:
    """A worker was paused past the grace time; another failed its trial and did the trial index."""
    paused, other = make_study(num_trials=2), make_study(num_trials=2)

    def interrupted(attempt: TrialContext) -> TrialResult:
        running = [trial for trial in other.trials() if trial.state == "running"]
        other._fail_trial(running[0])
        finish(other)
        return TrialResult(123.0)

    assert paused.work_once(interrupted)
    check_exact(other, 2)
    values = [trial.value for trial in complete(other).values()]
    assert 123.0 not in values


def test_a_worker_whose_trial_was_taken_hears_it_before_it_touches_files(
    make_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "Lease", lambda is_ours, lasts: Lease(is_ours, 0.0))
    paused, other = make_study(num_trials=2), make_study(num_trials=2)
    touched: list[str] = []

    def interrupted(attempt: TrialContext) -> TrialResult:
        attempt.renew_lease()
        touched.append("before")
        (running,) = [trial for trial in other.trials() if trial.state == "running"]
        other._fail_trial(running)
        attempt.renew_lease()
        touched.append("after")
        return work(attempt)

    assert paused.work_once(interrupted)
    assert touched == ["before"]
    assert paused.attribute("failure") is None
    (lost,) = [trial for trial in paused.trials() if trial.state == "failed"]
    assert lost.was_abandoned
    finish(other)
    check_exact(other, 2)


def test_a_lease_lasts_half_the_grace_time_of_the_heartbeats(
    make_study: Open, storage: RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(search, "Lease", functools.partial(Lease, now=lambda: now[0]))
    paused, other = make_study(num_trials=1), make_study(num_trials=1)
    assert storage.grace_period is not None
    ends: list[float] = []

    def interrupted(attempt: TrialContext) -> TrialResult:
        ends.append(attempt.renew_lease())
        (running,) = [trial for trial in other.trials() if trial.state == "running"]
        other._fail_trial(running)
        now[0] = storage.grace_period / 4
        ends.append(attempt.renew_lease())
        return work(attempt)

    assert paused.work_once(interrupted)
    assert ends == [storage.grace_period / 2]
    assert paused.attribute("failure") is None


def test_optunas_refusals_of_an_ended_trial_are_told_from_other_errors(make_study: Open) -> None:
    stage = make_study()
    assert stage._offer_trial()
    trial = stage.study.ask()
    stage._fail_trial(stage.trials()[0])
    refusals: list[Callable[[], object]] = [
        lambda: trial.set_user_attr("worker", "me"),
        lambda: trial.suggest_float("x", 0, 1),
        lambda: stage.study.tell(trial, 0.5),
    ]
    for refused in refusals:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            refused()
        assert search.was_taken_away(caught.value)
    hidden, unrelated = AssertionError("should not reach"), AssertionError("should not reach")
    hidden.__context__, unrelated.__context__ = caught.value, ValueError("another")
    assert search.was_taken_away(hidden)
    others = [unrelated, AssertionError(), ValueError("another"), KeyError("Cannot tell a trial")]
    assert not any(search.was_taken_away(error) for error in others)


def test_an_error_of_the_storage_is_no_trial_taken_away(
    make_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_study()

    def broken(*_: object) -> None:
        raise ValueError("the disk is full")

    monkeypatch.setattr(stage, "_claim", broken)
    with pytest.raises(ValueError, match="the disk is full"):
        stage.work_once(work)


def test_what_is_left_over_of_a_complete_stage_is_ended(
    make_study: Open, dead_worker: dict[str, Any]
) -> None:
    """A worker that was killed just after it enqueued a trial index, or claimed one, too late."""
    stage = make_study(num_trials=2)
    stage.work_once(work)
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    stage.tidy()
    assert [trial.state for trial in stage.trials()] == ["complete", "waiting"]
    stage.study.ask().set_user_attr("worker", dead_worker)
    finish(stage)
    stage.study.enqueue_trial({})
    stage.study.ask()
    stage.study.enqueue_trial({}, user_attrs={"trial_index": 1})
    stage.tidy()
    check_exact(stage, 2)
    ended = [trial for trial in stage.trials() if trial.state == "failed"]
    assert not any(trial.was_abandoned for trial in ended if trial.number > 2)


# -- failures ----------------------------------------------------------------------------------


def test_an_exception_is_recorded_and_is_no_lost_worker(
    make_study: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, clock = make_study(), itertools.count(0.0, 7.0)
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def broken(attempt: TrialContext) -> TrialResult:
        raise RuntimeError("no such file")

    for _ in range(MAX_LOST + 3):
        with pytest.raises(RuntimeError, match="no such file"):
            stage.work_once(broken)
    errors = [trial.error for trial in stage.trials()]
    assert set(errors) == {"RuntimeError: no such file"}
    assert {trial.seconds for trial in stage.trials()} == {7.0}
    assert len({repr(trial.params) for trial in stage.trials()}) == 1
    finish(stage)
    check_exact(stage, 4)


def test_a_failure_is_known_to_all_workers_until_the_user_starts_afresh(make_study: Open) -> None:
    one, other = make_study(), make_study()
    assert other.attribute("failure") is None
    one.record_failure("a reason", usage=True)
    assert other.attribute("failure") == {"message": "a reason", "usage": True}
    other.clear_failures()
    assert one.attribute("failure") is None


# -- diverged ----------------------------------------------------------------------------------


def diverging(num_trials: set[int]) -> Callable[[TrialContext], TrialResult]:
    def run(attempt: TrialContext) -> TrialResult:
        if attempt.trial_index in num_trials:
            return TrialResult(0.0, {"diverged": "the loss became nan"})
        return TrialResult(0.0 if attempt.trial_index == 3 else -1.0)

    return run


def test_a_diverged_trial_counts_and_never_wins(make_study: Open) -> None:
    stage = make_study()
    finish(stage, diverging({0, 1}))
    check_exact(stage, 4)
    best = best_trial(complete(stage))
    assert best is not None
    assert best.trial_index == 3


def test_if_all_diverged_there_is_no_winner(make_study: Open) -> None:
    stage = make_study()
    finish(stage, diverging({0, 1, 2, 3}))
    check_exact(stage, 4)
    assert best_trial(complete(stage)) is None


def test_the_best_trial_is_the_highest_observed_one_and_ties_go_to_the_first(
    make_study: Open,
) -> None:
    stage = make_study()
    values = [0.2, 0.5, 0.5, 0.1]
    finish(stage, lambda attempt: TrialResult(values[attempt.trial_index]))
    best = best_trial(complete(stage))
    assert best is not None
    assert best.trial_index == 1
    assert stage.study.direction is StudyDirection.MAXIMIZE, "what the sampler seeks"


# -- parameters --------------------------------------------------------------------------------


def params_by_index(stage: Study) -> list[dict[str, Any]]:
    return [trial.params for trial in complete(stage).values()]


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=pytest.mark.slow), "random"])
def test_a_study_stopped_anywhere_draws_what_an_uninterrupted_one_draws(
    make_study: Open,
    sampler: str,
    dead_worker: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = make_study(5, sampler, "whole")
    finish(whole)
    expected = params_by_index(whole)
    assert len({repr(params) for params in expected}) == 5, "every trial index draws its own"

    for _ in range(5):
        make_study(5, sampler, "stopped").work_once(work)
    assert params_by_index(make_study(5, sampler, "stopped")) == expected

    monkeypatch.setattr(search, "UNSIGNED_GRACE", 0.0)
    for trial_index in range(5):
        abandon(make_study(5, sampler, "killed"), dead_worker)
        signed, suggested = (dead_worker, 2) if trial_index % 2 else (None, 0)
        abandon(make_study(5, sampler, "half"), signed, suggested)
        for name in ("killed", "half"):
            make_study(5, sampler, name).work_once(work)
    for name in ("killed", "half"):
        stage = make_study(5, sampler, name)
        check_exact(stage, 5)
        assert params_by_index(stage) == expected, name


def test_parameters_lie_in_their_space(make_study: Open) -> None:
    stage = make_study(8, "tpe")
    finish(stage)
    for params in params_by_index(stage):
        assert set(params) == set(SPACE)
        assert 0 <= params["arguments.margin"] <= 1
        assert params["arguments.mode"] in ("a", "b", None)
        assert isinstance(params["arguments.number"], int)
        assert 2 <= params["arguments.number"] <= 9
        assert 1e-6 <= params["learning_rates.loss"] <= 1
    rates = [params["learning_rates.loss"] for params in params_by_index(stage)]
    assert min(rates) < 0.01 < max(rates), "drawn on a logarithmic scale"


@pytest.mark.parametrize("log", [True, False])
def test_whole_numbers_are_drawn_on_the_scale_that_is_asked_for(
    make_study: Open, log: bool
) -> None:
    stage = make_study(4, space={"number": Range(low=1, high=10**6, int=True, log=log)})
    finish(stage, lambda attempt: TrialResult(0.0))
    numbers = sorted(params["number"] for params in params_by_index(stage))
    assert all(isinstance(number, int) for number in numbers)
    assert 1 <= numbers[0] < numbers[-1] <= 10**6
    # Of four draws the least is below 10^4 with probability 0.99 on a logarithmic scale, else 0.04.
    assert (numbers[0] < 10**4) == log


def test_other_seeds_draw_other_parameters(make_study: Open) -> None:
    drawn = []
    for seed in (1, 2):
        stage = make_study(2, "random", str(seed), seed=seed)
        finish(stage)
        drawn.append(params_by_index(stage))
    assert drawn[0] != drawn[1]


def test_fixed_parameters_are_those_of_the_trials_number(make_study: Open) -> None:
    fixed = [{"arguments.margin": 0.25, "epochs": 3}, {"arguments.margin": 0.5, "epochs": 3}, None]
    stage = make_study(3, space={}, fixed=fixed)
    seen: list[dict[str, Any] | None] = []

    def note(attempt: TrialContext) -> TrialResult:
        seen.append(attempt.params)
        if attempt.params is not None:
            attempt.params.pop("epochs")  # a worker may change its copy
        return TrialResult(0.0)

    finish(stage, note)
    assert seen == [{"arguments.margin": 0.25}, {"arguments.margin": 0.5}, None]
    assert fixed[0] == {"arguments.margin": 0.25, "epochs": 3}


def test_slots_beyond_the_stage_do_not_count(make_study: Open) -> None:
    finish(make_study(num_trials=4))
    smaller = make_study(num_trials=2)
    assert is_complete(smaller)
    assert list(complete_by_index(smaller.trials(), range(2))) == [0, 1]
    # A worker that was paused while the experiment grew leaves what is new to others.
    smaller.study.enqueue_trial({}, user_attrs={"trial_index": 4})
    assert smaller.work_once(work)
    assert smaller.trials()[-1].duplicate


def test_the_study_records_its_sampler(make_study: Open) -> None:
    about = make_study(sampler="tpe").attribute("about")
    assert about["sampler"] == "tpe"
    assert about["sampler_arguments"]["n_startup_trials"] == 4, "as many as there are parameters"
    assert "optuna" in about["versions"]


def test_scores_in_the_format_of_older_versions_are_refused(make_study: Open) -> None:
    study = make_study()
    old = {"trial_index": 0, "scores": {"aggregate": {"map_at_r": 0.5}}}
    study.study.add_trial(create_trial(value=0.5, user_attrs=old))
    with pytest.raises(UsageError, match=r"trial 0 .* older versions .* with the version that"):
        complete(study)
