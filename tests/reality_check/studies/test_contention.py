"""What keeps many workers from getting in each other's way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from support.studies import open_study

from reality_check.launch.local import write_progress
from reality_check.launch.work_loop import PAUSES, _pause_after_poll
from reality_check.studies.patient_storage import PatientStorage
from reality_check.studies.storage import open_storage
from reality_check.studies.study import DuplicateTrial, Study
from reality_check.studies.trial import TrialResult
from reality_check.utils import interrupt as stopping


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PatientStorage:
    opened = open_storage(f"sqlite:///{tmp_path / 'studies.db'}")
    assert isinstance(opened, PatientStorage)
    opened.engine.dispose()
    sqlalchemy.event.listen(
        opened.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF")
    )
    return opened


def make_stage(storage: PatientStorage, num_trials: int) -> Study:
    return open_study(storage, "stage", num_trials, 0, fixed=[{}] * num_trials)


@pytest.mark.parametrize(("num_trials", "workers"), [(8, 5), (5, 8)])
def test_workers_that_raced_for_one_index_race_for_others_next(
    storage: PatientStorage, num_trials: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All begin at the same moment: each saw trial index 0 free, and enqueued it."""
    stages = [make_stage(storage, num_trials) for _ in range(workers)]
    for stage in stages:
        stage.study.enqueue_trial({}, user_attrs={"trial_index": 0})
    first, *losers = stages
    first._claim(first.study.ask())
    for stage in losers:
        with pytest.raises(DuplicateTrial):
            stage._claim(stage.study.ask())
    seen = first.trials()
    for stage in losers:
        monkeypatch.setattr(stage, "trials", lambda: seen)  # again all look before any claims
        monkeypatch.setattr(stage, "release_lost", lambda: seen)
        assert stage._offer_trial()
    monkeypatch.undo()
    offered = [trial.trial_index for trial in first.trials()[workers:]]
    assert len(offered) == len(losers)
    assert 0 not in offered
    assert len(set(offered)) == min(len(losers), num_trials - 1)


def test_one_worker_alone_takes_the_indices_in_their_order(storage: PatientStorage) -> None:
    seen = []
    stage = make_stage(storage, 4)
    while stage.work_once(
        lambda attempt: TrialResult(float(seen.append(attempt.trial_index) is None))
    ):
        pass
    assert seen == [0, 1, 2, 3]


def test_many_who_wait_ask_the_more_rarely_the_slower_the_storage_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("reality_check.launch.work_loop.pause", paused.append)
    for look in (0.001, 0.5, 100.0):
        _pause_after_poll(look)
    least, most = PAUSES
    assert paused == [least, 5.0, most]


@pytest.fixture
def nobody_asked() -> Iterator[None]:
    yield
    stopping._requested.clear()


@pytest.mark.usefixtures("nobody_asked")
def test_a_request_to_stop_ends_a_pause() -> None:
    threading.Timer(0.05, stopping.request).start()
    stopping.pause(3600.0)
    assert stopping.requested()


def test_notes_of_progress_do_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(descriptor: int) -> None:
        raise AssertionError("waits for the disk")

    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("os.fsync", wait)
    write_progress(tmp_path, 3, "{}")
    assert (tmp_path / "logs" / "worker_3.json").read_text() == "{}"


def test_where_others_run_a_worker_does_not_race_for_the_first_slot(
    storage: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    runners = [make_stage(storage, 50) for _ in range(3)]
    for trial_index, stage in enumerate(runners):
        stage.study.enqueue_trial({}, user_attrs={"trial_index": trial_index})
        stage._claim(stage.study.ask())
    seen = runners[0].trials()
    late = [make_stage(storage, 50) for _ in range(12)]
    for stage in late:  # all look before any of them offers
        monkeypatch.setattr(stage, "release_lost", lambda: seen)
        assert stage._offer_trial()
    offered = {trial.trial_index for trial in runners[0].trials()[3:]}
    assert not offered & {0, 1, 2}
    assert len(offered) > 4  # fewer happen once in 30 million times


def test_a_worker_that_finds_nothing_waiting_leaves_no_trial_behind(
    storage: PatientStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw a trial that waits, and another worker was faster."""
    stage = make_stage(storage, 2)
    monkeypatch.setattr(stage, "_offer_trial", lambda: True)
    assert stage.work_once(lambda attempt: TrialResult(0.5))
    assert not stage.trials()
