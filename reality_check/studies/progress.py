"""The progress of an experiment, read from its studies."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.config.suite import load
from reality_check.results import TrialRecord
from reality_check.studies.output_folder import check_folder
from reality_check.studies.plan import BASELINES, PlannedStudy, States, StudyKey, StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.suite_folder import is_suite
from reality_check.utils.errors import UsageError
from reality_check.utils.processes import is_alive, shares_process_ids

#: Seconds without a report after which a worker of another machine counts as gone.
_STALE_SECONDS = 3600.0


def trial_name(stage: str, work: Mapping[str, Any]) -> str:
    """Return the name of a trial, counted from 1: ``"trial 3"`` or ``"search 2, trial 3"``.

    ``work`` has the ``trial_index`` and the ``search``, counted from 0; both may be missing.
    """
    index, search = work.get("trial_index"), work.get("search") or 0
    name = Stage(stage).trial_name
    if index is not None:
        name += f" {index + 1}"
    if stage == Stage.RACE:
        return f"rung {search + 1}, {name}"
    return f"search {search + 1}, {name}" if search else name


@dataclass(frozen=True)
class Row:
    """The progress of a stage of a method, or of one of its searches.

    Attributes:
        method: the name of the method.
        stage: the stage.
        search: the number of the search, for that stage.
        done: the number of complete trials.
        wanted: the number of trials of the stage.
        best: the value of the best trial; ``None`` before there is one.
        mean_seconds: the mean duration of complete trials; ``None`` before there is one.
    """

    method: str
    stage: Stage
    search: int
    done: int
    wanted: int
    best: float | None
    mean_seconds: float | None


def stage_rows(states: States) -> list[Row]:
    """Return the progress of every stage of every method, by method."""
    methods = dict.fromkeys(study.key.method for study in states.plan if study.key != BASELINES)
    rows = []
    for method in methods:
        for study in states.plan:
            state = states.get(study.key)  # None: it cannot start yet
            if study.key.method == method and (state is None or state.num_trials):
                rows.append(_stage_row(study, state))
    return rows


def _stage_row(planned: PlannedStudy, state: StudyState | None) -> Row:
    """Return the row of a study; ``state`` is ``None`` while an earlier study is incomplete."""
    if state is None:
        return Row(*planned.key, 0, planned.num_trials, best=None, mean_seconds=None)
    seconds = [trial.seconds for trial in state.complete.values() if trial.seconds is not None]
    return Row(
        *planned.key,
        len(state.complete),
        state.num_trials,
        None if state.best is None else state.best.value,
        fmean(seconds) if seconds else None,
    )


def seconds_left(rows: Sequence[Row], workers: int) -> float | None:
    """Estimate the remaining seconds; return ``None`` before the first trial is complete.

    Where no trial is complete, its duration is guessed from other methods and stages.
    """
    by_stage = {row.stage: row.mean_seconds for row in rows if row.mean_seconds is not None}
    if not by_stage:
        return None
    search = by_stage.get(Stage.SEARCH) or max(by_stage.values())
    # A trial of a search trains a network for each fold, a final run only one.
    by_stage.setdefault(Stage.FINAL, search / 2)
    total = sum(
        (row.wanted - row.done) * (row.mean_seconds or by_stage.get(row.stage, search))
        for row in rows
    )
    return total / max(workers, 1)


def worker_states(out_dir: Path) -> list[dict[str, Any]]:
    """Return the latest report of every worker that is alive."""
    states = []
    for file in sorted((out_dir / "logs").glob("worker_*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            state = json.loads(file.read_text(encoding="utf-8"))
            if is_alive(state["worker"]) and time.time() - state["time"] < _STALE_SECONDS:
                states.append(state)
    return states


def find_folder(path_or_name: str | Path) -> Path:
    """Return the output folder that a path, a YAML file or the name of an experiment refers to.

    Raises:
        UsageError: the folder does not exist.
    """
    folder = Path(path_or_name)
    if is_suite(folder):
        return folder
    if folder.is_dir() or folder.suffix == ".pack":
        return check_folder(folder)
    by_name = Path("runs") / load(path_or_name).name
    if not (by_name / "experiment.yaml").exists() and not is_suite(by_name):
        raise UsageError(
            f"{path_or_name} has not been run here: there is no {by_name}; name its folder."
        )
    return by_name


def status(recorded: RecordedExperiment) -> dict[str, Any]:
    """Return the state of an experiment; docs/status.md lists the keys."""
    reported = {_worker_key(state["worker"]): state for state in worker_states(recorded.out_dir)}
    states = recorded.states()  # a study is read only once, which takes most of the time
    begun = states.begun()
    failures = {key: failure for key, study in begun.items() if (failure := study.failure)}
    rows = stage_rows(states)
    stages = [
        {
            **asdict(row),
            "failure": failures.get(StudyKey(row.method, row.stage, row.search), {}).get("message"),
            **_count_attempts(begun.get(StudyKey(row.method, row.stage, row.search))),
        }
        for row in rows
    ]
    running = [
        _describe_running(recorded, key, trial, reported)
        for key, study in begun.items()
        for trial in study.attempts
        if trial.state == "running" and not trial.duplicate
    ]
    # The reports of workers with a running trial are no longer among them.
    running += [_describe_idle_worker(recorded, state) for state in reported.values()]
    working = sum(entry["alive"] is not False for entry in running)
    complete = states.is_complete()
    return {
        "experiment": recorded.experiment.name,
        "folder": str(recorded.out_dir),
        "state": _overall_state(complete, bool(failures), working),
        "seconds_left": None if complete else seconds_left(rows, working or 1),
        "hours": _hours_by_device(trial for study in begun.values() for trial in study.attempts),
        "failures": [
            {"method": method, "stage": stage, "search": search, "reason": failure["message"]}
            for (method, stage, search), failure in failures.items()
        ],
        "stages": stages,
        "running": running,
    }


def _overall_state(complete: bool, failed: bool, working: int) -> str:
    if complete or failed:
        return "complete" if complete else "failed"
    return "running" if working else "stopped"


def _worker_key(worker: Mapping[str, Any]) -> tuple[str, str | None, int]:
    return worker["host"], worker.get("namespace"), worker["pid"]


def _count_attempts(study: StudyState | None) -> dict[str, Any]:
    """Return a stage's attempts that diverged, failed, or lost their worker, for its status."""
    trials = () if study is None else study.attempts
    failed = [trial for trial in trials if trial.state == "failed" and not trial.duplicate]
    lost = [trial for trial in failed if trial.was_abandoned]
    lost_indices = {trial.trial_index for trial in lost}
    # The trials of which a worker was lost, and which have an attempt that did not fail.
    retried = {trial.trial_index for trial in trials if trial not in failed} & lost_indices
    complete = () if study is None else study.complete.values()
    return {
        "diverged": sum(trial.diverged is not None for trial in complete),
        "failed": [
            {"trial_index": trial.trial_index, "reason": trial.error}
            for trial in failed
            if trial.error is not None
        ],
        "lost": len(lost),
        "retried": len(retried),
    }


def _describe_running(
    recorded: RecordedExperiment,
    key: StudyKey,
    trial: TrialRecord,
    reported: dict[tuple[str, str | None, int], dict[str, Any]],
) -> dict[str, Any]:
    """Describe a running trial with its worker's report, which is removed from ``reported``."""
    (method, stage, search), worker, trial_index = key, trial.worker, trial.trial_index
    state: dict[str, Any] = {}
    if worker is not None and _worker_key(worker) in reported:
        state = reported.pop(_worker_key(worker))
        keys = ("method", "doing", "search", "trial_index")  # "doing" is the stage
        if tuple(state.get(name) for name in keys) != (method, stage, search, trial_index):
            # The report is about another trial, so only the facts about the worker apply.
            state = {name: state.get(name) for name in ("number", "device", "time")}
    entry = _describe_worker(recorded, worker, state)
    entry["device"] = entry["device"] or trial.device
    if entry["since"] is None and trial.started is not None:
        entry["since"] = trial.started.timestamp()
    about = {"method": method, "stage": stage, "search": search, "trial_index": trial_index}
    return {**about, **entry}


def _describe_idle_worker(recorded: RecordedExperiment, state: dict[str, Any]) -> dict[str, Any]:
    """Describe a worker that waits, starts or ends, so that it has no running trial."""
    about = {key: state.get(key) for key in ("method", "search", "trial_index")}
    stage = state["doing"] if state.get("method") is not None else None
    return {**about, "stage": stage, **_describe_worker(recorded, state["worker"], state)}


def _describe_worker(
    recorded: RecordedExperiment, worker: Mapping[str, Any] | None, state: dict[str, Any]
) -> dict[str, Any]:
    """Describe a worker by its record in a trial (``worker``) and by its report (``state``)."""
    # None: its process cannot be seen from this machine.
    alive = is_alive(worker) if worker is not None and shares_process_ids(worker) else None
    log = recorded.out_dir / "logs" / f"worker_{state.get('number')}.log"
    return {
        "host": None if worker is None else worker["host"].partition("/")[0],
        "pid": None if worker is None else worker["pid"],
        "alive": alive,
        "device": state.get("device"),
        "since": state.get("since"),
        "doing": state.get("doing"),
        "fold": state.get("fold"),
        "folds": recorded.experiment.protocol.split.folds,
        "epoch": state.get("epoch"),
        "max_epochs": state.get("max_epochs"),
        "last_word": state.get("time"),
        "log": str(log) if log.exists() else None,
    }


def _hours_by_device(trials: Iterable[TrialRecord]) -> dict[str, float]:
    """Return the hours of processes or GPUs over all attempts, by kind of device.

    Running attempts, and those that lost their worker, count up to their last heartbeat.
    """
    hours: dict[str, float] = {}
    for trial in trials:
        kind = trial.device_kind
        hours[kind] = hours.get(kind, 0.0) + trial.hours
    return {kind: round(spent, 4) for kind, spent in sorted(hours.items()) if spent}
