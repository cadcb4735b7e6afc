from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from support.studies import is_complete, open_study

from reality_check.studies import storage as storages
from reality_check.studies.retries import is_temporary
from reality_check.studies.storage import open_storage
from reality_check.studies.trial import TrialResult
from reality_check.utils.lease import HeartbeatMonitor, Lease, LeaseLost


def test_a_heartbeat_that_stays_the_same_for_the_grace_time_is_stale() -> None:
    now = [0.0]
    monitor = HeartbeatMonitor(lambda: now[0])
    assert monitor.stale({"a": 1, "b": 1}, 10) == []
    now[0] = 9.0
    assert monitor.stale({"a": 1, "b": 2}, 10) == []
    now[0] = 11.0
    assert monitor.stale({"a": 1, "b": 2}, 10) == ["a"]
    now[0] = 12.0
    assert monitor.stale({"a": 0, "b": 2}, 10) == [], "a heartbeat that goes back is one"
    now[0] = 100.0
    assert monitor.stale({"c": 5}, 10) == [], "what is seen for the first time is not stale"


def test_a_worker_is_lost_once_its_heartbeat_stands_still(tmp_path: Path) -> None:
    """No clocks are compared, which jump: a heartbeat is one as long as it changes."""
    storage = open_storage(f"sqlite:///{tmp_path / 'studies.db'}")
    now = [0.0]
    storage._monitor = HeartbeatMonitor(lambda: now[0])
    stage = open_study(storage, "s", 2, 0, fixed=[{}] * 2)
    elsewhere = {"host": "elsewhere/1", "pid": 1, "started": 1}
    for trial_index in range(2):
        stage.study.enqueue_trial({}, user_attrs={"trial_index": trial_index})
    trials = [stage.study.ask() for _ in range(2)]
    for trial in trials:
        trial.set_user_attr("worker", elsewhere)
        storage.record_heartbeat(trial._trial_id)

    def running() -> list[int]:
        stage.release_lost()
        states = [trial.state for trial in stage.trials()]
        return [n for n, state in enumerate(states) if state == "running"]

    assert running() == [0, 1]
    now[0] = 200.0
    storage.record_heartbeat(trials[0]._trial_id)
    assert running() == [0, 1]
    now[0] = 400.0  # the second has shown the same heartbeat for longer than 300 seconds
    assert running() == [0]


# -- leases --------------------------------------------------------------------------------------


def test_a_lease_is_asked_for_again_when_the_answer_has_aged() -> None:
    now, answers, asked = [0.0], [True, True, False], []

    def is_ours() -> bool:
        asked.append(now[0])
        return answers.pop(0)

    lease = Lease(is_ours, 100.0, lambda: now[0])
    ends = []
    for moment in (10.0, 49.0, 60.0, 100.0, 119.0):
        now[0] = moment
        ends.append(lease.renew())
    assert (asked, ends) == ([60.0, 119.0], [100.0, 100.0, 160.0, 160.0, 219.0])
    now[0] = 1000.0  # it stood still meanwhile
    with pytest.raises(LeaseLost):
        lease.renew()


def test_an_answer_that_takes_long_counts_from_the_question() -> None:
    now = [0.0]

    def is_ours() -> bool:
        now[0] += 80.0
        return True

    lease = Lease(is_ours, 100.0, lambda: now[0])
    now[0] = 60.0
    assert lease.renew() == 160.0


# -- standing still ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.xdist_group("servers")
def test_a_worker_paused_while_it_holds_a_lock_does_not_hold_up_the_others(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storages, "STANDSTILL", 3)
    storage, other = (open_storage(postgres.url(), wait=True) for _ in range(2))
    stage = open_study(other, "standstill", 1, 0, fixed=[{}])
    with storage.engine.connect() as paused:
        lock = sqlalchemy.text("SELECT study_id FROM studies FOR UPDATE")
        paused.execute(lock)
        work = threading.Thread(
            target=stage.work_once, args=(lambda attempt: TrialResult(0.5),), daemon=True
        )
        work.start()
        work.join(timeout=300)
        assert is_complete(stage)
        # When it comes back it is told, and asks again.
        with pytest.raises(sqlalchemy.exc.DBAPIError) as caught:
            paused.execute(lock)
        assert is_temporary(caught.value)
