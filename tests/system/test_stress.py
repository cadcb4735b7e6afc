"""Eight workers on PostgreSQL, killed and paused at random: nothing is lost or counted twice."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.pace import Pace
from support.paths import ROOT, SUPPORT
from support.prepared import logs, prepare

from reality_check.api import run
from reality_check.config import Experiment, load_experiment
from reality_check.config.metrics import Stage
from reality_check.launch.trial_runner import TrialRunner
from reality_check.studies.output_folder import load_locked
from reality_check.studies.plan import StudyState
from reality_check.studies.progress import worker_states
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.trial import TrialContext
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.utils import checkpoints
from reality_check.utils.passwords import PASSWORD_VARIABLE, split_password

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.xdist_group("servers"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the workers"),
    pytest.mark.usefixtures("blank_figures"),
    pytest.mark.skipif(
        "REALITY_CHECK_LONG_TESTS" not in os.environ,
        reason="eight workers take a minute and a half; set REALITY_CHECK_LONG_TESTS=1",
    ),
]

WORKERS, KILLS, PAUSES = 8, 10, 8
#: Seconds between two signs of life, and without one until a worker is given up, where nothing else
#: runs on the machine; see ``pace.py``.
INTERVAL, GRACE = 1, 3
METHODS = ("normalized_softmax", "contrastive")
#: Searches of each method, whose winners are each trained again once.
SEARCHES = 3
#: Trials of each study.
SLOTS = {"search": 3, "reproductions": SEARCHES, "final": SEARCHES}


def experiment(tiny: Path, storage: str | None) -> Experiment:
    changes = [
        f"methods=[{', '.join(f'quick/{name}' for name in METHODS)}]",
        f"protocol.search.trials={SLOTS['search']}",
        "protocol.search.kind=repeated",
        f"protocol.search.repeats={SEARCHES}",
        "protocol.reproductions=1",
        "protocol.training.max_epochs=12",
        "protocol.training.patience=null",
    ]
    made = load_experiment(str(tiny), changes)
    return made.model_copy(update={"storage": storage})


class Crew:
    """Workers of one output folder, each replaced when it was killed.

    Args:
        out: the output folder.
        count: how many workers.
        pace: how many times slower than alone this machine is.
    """

    def __init__(self, out: Path, count: int, pace: float) -> None:
        self.out, self.pace = out, pace
        self.killed: set[int] = set()
        self.asleep: dict[int, float] = {}
        times = [str(math.ceil(seconds * pace)) for seconds in (GRACE, INTERVAL)]
        command = [sys.executable, "-m", "support.stress_workers", str(out), *times]
        path = os.pathsep.join(map(str, (ROOT, SUPPORT.parent)))  # tests have a reality_check too
        self._forks = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids = {number: self._fork(number) for number in range(count)}

    def kill(self, pid: int) -> None:
        """As the kernel does when memory is short."""
        self.killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    def pause(self, pid: int, graces: float) -> None:
        """It stands still, in the middle of whatever it does, for so many grace times."""
        os.kill(pid, signal.SIGSTOP)
        self.asleep[pid] = time.monotonic() + graces * math.ceil(GRACE * self.pace)

    def tend(self) -> bool:
        """Wake who has slept enough, replace who was killed; return whether anybody works."""
        for pid, until in list(self.asleep.items()):
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGCONT)
                del self.asleep[pid]
        left = False
        for number, pid in self.pids.items():
            if Path(f"/proc/{pid}").exists():
                left = True
            elif pid in self.killed:
                self.pids[number] = self._fork(number)
                left = True
            else:
                status = (self.out.parent / f"status_{pid}").read_text()
                assert status == "0", (self.out / "logs" / f"worker_{number}.log").read_text()
        return left

    def training(self) -> list[int]:
        """Workers that are awake and in the middle of a fold run."""
        states = [s for s in worker_states(self.out) if s.get("epoch", 0) >= 1]
        pids = [state["worker"]["pid"] for state in states]
        return sorted(set(pids) - set(self.asleep) - self.killed)

    def close(self) -> None:
        """End all."""
        self._forks.kill()
        self._forks.wait()

    def _fork(self, number: int) -> int:
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        print(number, file=self._forks.stdin, flush=True)
        return int(self._forks.stdout.readline())


def disturb(crew: Crew, chance: random.Random) -> None:
    """Kill and pause workers in the middle of their work."""
    kills = pauses = 0
    while kills < KILLS or pauses < PAUSES:
        time.sleep(chance.uniform(0.05, 0.6) * crew.pace)
        assert crew.tend(), f"the work was over after {kills} kills and {pauses} pauses"
        victims = crew.training()
        if not victims:
            continue
        victim = chance.choice(victims)
        if kills < KILLS and (pauses == PAUSES or chance.random() < KILLS / (KILLS + PAUSES)):
            crew.kill(victim)
            kills += 1
        elif pauses < PAUSES and len(crew.asleep) < WORKERS // 2:
            # One in four is not given up meanwhile.
            crew.pause(victim, chance.choice([0.3, 2.5, 3.0, 3.5]))
            pauses += 1


def finish(crew: Crew) -> None:
    """Wait until the workers end, all of them well."""
    end = time.monotonic() + 300 * crew.pace
    while crew.tend():
        assert time.monotonic() < end, "the work does not end"
        time.sleep(0.2)


@pytest.mark.parametrize("seed", [1])
def test_workers_killed_and_paused_at_random(
    postgres: Any, tiny: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare, password = split_password(postgres.url())
    monkeypatch.setenv(PASSWORD_VARIABLE, password or "")
    made, out = experiment(tiny, bare), tmp_path / "out"
    pace = Pace()
    prepare(made, out)
    (out / "logs").mkdir()
    crew = Crew(out, WORKERS, pace.factor())
    try:
        disturb(crew, random.Random(seed))
        finish(crew)
    finally:
        crew.close()
    recorded = RecordedExperiment(load_locked(out), out)
    units = list(recorded.states().ready())
    check_counts(units)
    check_losses(units, out)
    check_files(out)
    check_results(units, experiment(tiny, None), tmp_path / "again")
    run(made, out)
    check_table(out / "results.csv")


def check_counts(units: list[StudyState]) -> None:
    """Every trial index of every stage has one complete trial, and nothing else is left."""
    complete_indices = {}
    for unit in units:
        states = Counter(trial.state for trial in unit.attempts)
        assert set(states) <= {"complete", "failed"}, (unit.method, unit.stage, states)
        complete = [t for t in unit.attempts if t.state == "complete"]
        key = (unit.method, unit.stage, unit.search)
        complete_indices[key] = sorted(t.trial_index for t in complete)
        assert unit.failure is None
    wanted = {
        (name, stage, search): num_trials
        for name in METHODS
        for stage, num_trials in SLOTS.items()
        for search in range(SEARCHES if stage == "search" else 1)
    }
    wanted["", Stage.BASELINES, 0] = SEARCHES
    assert complete_indices == {key: list(range(num_trials)) for key, num_trials in wanted.items()}


def check_losses(units: list[StudyState], out: Path) -> None:
    """Workers were lost in the middle of trials, and some of those came back and stood down."""
    failed = [t for u in units for t in u.attempts if t.state == "failed"]
    assert sum(trial.was_abandoned for trial in failed) >= KILLS // 2
    assert not [trial for trial in failed if trial.error is not None]
    said = logs(out)
    assert "its trial went to another" in said
    assert "Traceback" not in said


def check_files(out: Path) -> None:
    """No file is half-written, and of the search no checkpoint is left."""
    assert [str(path) for path in out.rglob(".*.tmp")] == []
    kept = list(out.rglob("*.pt"))
    for path in kept:
        checkpoints.check(path)
    assert {path.relative_to(out).parts[1] for path in kept} == {"reproductions", "final"}
    folds = [path.parent for path in out.rglob("model.pt")]
    assert len(folds) == len(METHODS) * (SLOTS["reproductions"] * 2 + SLOTS["final"])


def check_results(units: list[StudyState], made: Experiment, folder: Path) -> None:
    """What took several attempts is bit for bit what one undisturbed process finds."""
    folder.mkdir()
    again = TrialRunner(PreparedExperiment(made), folder)
    checked = Counter[str]()
    for unit in units:
        lost = {t.trial_index for t in unit.attempts if t.was_abandoned}
        num_trials = sorted(
            unit.complete, key=lambda trial_index: (trial_index not in lost, trial_index)
        )
        for trial_index in num_trials[:2]:
            trial = unit.complete[trial_index]
            params = (unit.given and unit.given[trial_index]) or trial.params
            outcome = again.do(unit, TrialContext(trial_index, dict(params)))
            found = json.loads(json.dumps(outcome.attributes))
            told = {key: getattr(trial, key) for key in found}
            # As text: it has every digit, and a curve may have NaN. A database has no order.
            texts = [
                json.dumps(pair, sort_keys=True)
                for pair in ((trial.value, told), (outcome.value, found))
            ]
            assert texts[0] == texts[1]
            checked[unit.stage] += 1
    each = {stage: 2 * len(METHODS) for stage in SLOTS}
    each["search"] *= SEARCHES
    assert checked == {**each, Stage.BASELINES: 2}


def check_table(path: Path) -> None:
    """A row per method, category, reproduction and metric."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    keys = [(row["method"], row["category"], row["reproduction"], row["metric"]) for row in rows]
    metrics = {row["metric"] for row in rows}
    wanted = {
        (method, category, str(number), metric)
        for method in METHODS
        for category in ("aggregate", "ensemble", "complete")
        for number in range(SLOTS["reproductions"])
        for metric in metrics
    }
    assert len(keys) == len(set(keys))
    assert set(keys) == wanted
