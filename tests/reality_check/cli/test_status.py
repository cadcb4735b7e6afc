from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.studies import complete

from reality_check.cli.status_view import print_status, show
from reality_check.config import compose
from reality_check.config.metrics import Stage
from reality_check.studies import patient_storage
from reality_check.studies import study as search
from reality_check.studies.output_folder import load_locked, lock_experiment
from reality_check.studies.plan import StudyKey
from reality_check.studies.progress import find_folder, status
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.study import Study
from reality_check.studies.trial import TrialResult
from reality_check.utils.errors import UsageError
from reality_check.utils.interrupt import Stopped
from reality_check.utils.processes import this_process


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedExperiment:
    """Two methods of two trials and one reproduction; nothing is done."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    experiment = compose(
        {
            "name": "tiny",
            "dataset": "glyphs",
            "model": "conv4",
            "protocol": {"base": "quick_one_search", "search": {"trials": 2}, "reproductions": 1},
            "methods": ["contrastive", "warped_softmax"],
            "device": "cpu",
        }
    ).model_copy(update={"code": {"dataset": "1"}})
    lock_experiment(experiment, tmp_path / "runs" / "tiny")
    (tmp_path / "runs" / "tiny" / "logs").mkdir()
    return RecordedExperiment(load_locked(tmp_path / "runs" / "tiny"), tmp_path / "runs" / "tiny")


def search_of(recorded: RecordedExperiment, method: str) -> Study:
    state = recorded.states().get(StudyKey(method, Stage.SEARCH))
    assert state is not None
    return recorded.study(state)


def claim(stage: Study, worker: dict[str, Any] | None) -> None:
    """A worker asks for the next trial index, and is never heard of again."""
    assert stage._offer_trial()
    trial = stage.study.ask()
    if worker is not None:
        trial.set_user_attr("worker", worker)


def say(recorded: RecordedExperiment, number: int, **state: Any) -> None:
    reported = {"worker": this_process(), "number": number, "time": time.time(), **state}
    logs = recorded.out_dir / "logs"
    (logs / f"worker_{number}.json").write_text(json.dumps(reported))
    (logs / f"worker_{number}.log").write_text("")


def text_of(recorded: RecordedExperiment, width: int = 80) -> str:
    console = Console(width=width, color_system=None, record=True, quiet=False)
    with console.capture() as captured:
        console.print(show(status(recorded)))
    return captured.get()


def row(state: dict[str, Any], method: str, stage: str = "search") -> dict[str, Any]:
    entries: list[dict[str, Any]] = [
        entry for entry in state["stages"] if (entry["method"], entry["stage"]) == (method, stage)
    ]
    assert len(entries) == 1
    return entries[0]


DEAD = {**this_process(), "pid": 2**22 + 1}
ELSEWHERE = {"host": "node7/boot", "pid": 5, "started": 1}


def test_before_the_first_trial(recorded: RecordedExperiment) -> None:
    state = status(recorded)
    assert state["state"] == "stopped"
    assert state["seconds_left"] is None
    assert state["running"] == []
    assert state["hours"] == {}
    assert [entry["done"] for entry in state["stages"]] == [0] * len(state["stages"])
    assert "no workers at work" in text_of(recorded)


def test_jobs_that_wait_in_the_queue_are_shown(
    recorded: RecordedExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\necho '7_0|RUNNING\n7_1|PENDING\n8|PENDING'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    assert "SLURM" not in text_of(recorded)
    (recorded.out_dir / "slurm.json").write_text('{"0": "7_0", "1": "7_1"}')
    assert "SLURM: 7_0 RUNNING, 7_1 PENDING." in text_of(recorded)
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert "SLURM" not in text_of(recorded), "the controller does not answer"


def test_where_and_how_far_a_trial_is(recorded: RecordedExperiment) -> None:
    claim(search_of(recorded, "contrastive"), this_process())
    since = time.time() - 125
    say(
        recorded,
        3,
        doing="search",
        method="contrastive",
        search=0,
        trial_index=0,
        since=since,
        device="cuda:1",
        fold=1,
        epoch=7,
        max_epochs=40,
    )
    state = status(recorded)
    assert state["state"] == "running"
    (entry,) = state["running"]
    assert (entry["method"], entry["stage"], entry["trial_index"]) == ("contrastive", "search", 0)
    assert (entry["fold"], entry["epoch"], entry["max_epochs"]) == (1, 7, 40)
    assert (entry["device"], entry["since"], entry["alive"]) == ("cuda:1", since, True)
    assert entry["log"] == str(recorded.out_dir / "logs" / "worker_3.log")
    assert entry["pid"] == this_process()["pid"]
    text = text_of(recorded, 120)
    assert "contrastive: trial 1" in text
    assert "epoch 7/40" in text
    assert "worker_3.log" in text
    assert "cuda:1" in text
    assert "1 worker at work" in text


def test_a_worker_of_another_machine_is_shown_from_the_storage_alone(
    recorded: RecordedExperiment,
) -> None:
    claim(search_of(recorded, "contrastive"), ELSEWHERE)
    (entry,) = status(recorded)["running"]
    assert (entry["host"], entry["pid"], entry["alive"]) == ("node7", 5, None)
    assert abs(entry["since"] - time.time()) < 100, (
        "since the trial began, also in other time zones"
    )
    assert "node7 5" in text_of(recorded)


@pytest.fixture
def far_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone hours away from UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be set")
@pytest.mark.usefixtures("far_west")
def test_times_are_right_in_every_time_zone(recorded: RecordedExperiment) -> None:
    stage = search_of(recorded, "contrastive")
    for _ in range(2):
        stage.work_once(lambda attempt: TrialResult(0.5))
    first, second = complete(stage).values()
    times = [first.started, first.ended, second.started]
    assert times == sorted(times, key=str), "one after the other"
    claim(search_of(recorded, "warped_softmax"), ELSEWHERE)
    (entry,) = status(recorded)["running"]
    assert abs(entry["since"] - time.time()) < 100


def test_a_worker_of_another_container_is_not_known_to_be_alive(
    recorded: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are process 7 of the same machine: what one says is not taken for the other's."""
    first, other = ({**this_process(), "namespace": f"pid:[{n}]", "pid": 7} for n in (1, 2))
    claim(search_of(recorded, "contrastive"), first)
    say(
        recorded,
        0,
        worker=first,
        doing="search",
        method="contrastive",
        search=0,
        trial_index=0,
        epoch=3,
    )
    say(recorded, 1, worker=other, doing="waiting for other workers")
    running = status(recorded)["running"]
    assert [(entry["pid"], entry["alive"], entry["epoch"]) for entry in running] == [
        (7, None, 3),
        (7, None, None),
    ]


def test_lost_and_retried_trials_are_counted(recorded: RecordedExperiment) -> None:
    stage = search_of(recorded, "warped_softmax")
    claim(stage, DEAD)
    assert status(recorded)["running"][0]["alive"] is False
    assert "its worker is gone" in text_of(recorded, 120)
    assert status(recorded)["state"] == "stopped"
    claim(stage, ELSEWHERE)
    assert (row(status(recorded), "warped_softmax")["lost"]) == 1
    assert (row(status(recorded), "warped_softmax")["retried"]) == 1
    assert "lost a worker once; 1 trials retried" in text_of(recorded, 120)


def test_failures_are_shown_with_their_reason(
    recorded: RecordedExperiment, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = search_of(recorded, "contrastive")

    def broken(attempt: object) -> TrialResult:
        raise OSError("no table")

    with pytest.raises(OSError, match="no table"):
        stage.work_once(broken)
    stage.record_failure("OSError: no table", usage=False)
    assert print_status(recorded) == "failed"
    text = capsys.readouterr().out
    assert "Stopped: contrastive, search: OSError: no table" in text
    entry = row(status(recorded), "contrastive")
    assert entry["failure"] == "OSError: no table"
    assert entry["failed"] == [{"trial_index": 0, "reason": "OSError: no table"}]
    assert entry["lost"] == 0


def test_done_trials_cost_hours_and_tell_the_time_to_go(
    recorded: RecordedExperiment, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = search_of(recorded, "contrastive")
    cost = {"seconds": 1800.0, "device": "cuda:0", "processes": 2}
    stage.work_once(lambda attempt: TrialResult(0.5, cost))
    stage.work_once(lambda attempt: TrialResult(0.0, {**cost, "diverged": "nan"}))
    state = status(recorded)
    assert state["hours"] == {"cuda": 2.0}
    assert row(state, "contrastive")["done"] == 2
    assert row(state, "contrastive")["diverged"] == 1
    assert row(state, "contrastive")["best"] == 0.5
    assert state["seconds_left"] > 1800
    assert "Used, including lost attempts: 2.00 GPU hours." in text_of(recorded)
    assert print_status(recorded, as_json=True) == "stopped"
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(state))


# -- what it cost --------------------------------------------------------------------------------


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(search, "time", made)
    monkeypatch.setattr(patient_storage, "time", made)
    return made


GPU, CPUS = {"device": "cuda:1", "processes": 1}, {"device": "cpu", "processes": 4}


def test_attempts_that_lost_their_worker_cost_hours_too(
    recorded: RecordedExperiment, clock: Clock
) -> None:
    stage = search_of(recorded, "contrastive")
    claim(stage, DEAD)
    lost = stage.study.trials[0]
    for key, value in GPU.items():
        recorded.storage.set_trial_user_attr(lost._trial_id, key, value)
    for _ in range(3):
        recorded.storage.record_heartbeat(lost._trial_id)  # type: ignore[attr-defined]
        clock.now += 1800.0
    # Three heartbeats, the last one after an hour; when it died after that nobody knows.
    assert status(recorded)["hours"] == {"cuda": 1.0}

    def whole(attempt: object) -> TrialResult:
        clock.now += 7200.0
        return TrialResult(0.5)

    assert stage.work_once(whole, GPU)
    assert row(status(recorded), "contrastive")["lost"] == 1
    assert status(recorded)["hours"] == {"cuda": 3.0}
    # A worker that was only paused comes back to a trial that is no longer its own.
    recorded.storage.record_heartbeat(lost._trial_id)  # type: ignore[attr-defined]
    assert status(recorded)["hours"] == {"cuda": 3.0}


def test_attempts_that_stop_or_fail_cost_hours_of_their_kind(
    recorded: RecordedExperiment, clock: Clock
) -> None:
    stage = search_of(recorded, "contrastive")

    def ends_with(error: Exception) -> None:
        def work(attempt: object) -> TrialResult:
            clock.now += 900.0
            raise error

        with pytest.raises(type(error)):
            stage.work_once(work, CPUS)

    ends_with(Stopped())
    assert status(recorded)["hours"] == {"cpu": 1.0}
    ends_with(OSError("no table"))
    assert status(recorded)["hours"] == {"cpu": 2.0}
    cost = {"device": "cuda:0,1", "processes": 2}
    stage.work_once(lambda attempt: TrialResult(0.5, {"seconds": 1800.0}), cost)
    assert status(recorded)["hours"] == {"cpu": 2.0, "cuda": 1.0}
    assert "Used, including lost attempts: 2.00 hours of CPU processes, 1.00 GPU hours." in text_of(
        recorded, 120
    )


def test_the_device_of_a_worker_of_another_machine_is_known(recorded: RecordedExperiment) -> None:
    stage = search_of(recorded, "contrastive")
    claim(stage, ELSEWHERE)
    recorded.storage.set_trial_user_attr(stage.study.trials[0]._trial_id, "device", "cuda:7")
    (entry,) = status(recorded)["running"]
    assert entry["device"] == "cuda:7"
    assert "node7 5, cuda:7" in text_of(recorded, 120)


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_the_terminal(recorded: RecordedExperiment, width: int) -> None:
    claim(search_of(recorded, "contrastive"), this_process())
    say(
        recorded,
        0,
        doing="search",
        method="contrastive",
        search=0,
        trial_index=0,
        fold=0,
        epoch=1,
        max_epochs=9,
    )
    text = text_of(recorded, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_the_folder_may_be_named_by_the_experiment(
    recorded: RecordedExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_folder(str(recorded.out_dir)) == recorded.out_dir
    with pytest.raises(UsageError, match=r"quickstart has not been run here.*runs/quickstart"):
        find_folder("quickstart")
    recorded.out_dir.rename(tmp_path / "runs" / "quickstart")
    assert find_folder("quickstart") == Path("runs/quickstart")
    with pytest.raises(UsageError, match="is not an output folder"):
        find_folder(str(tmp_path))
