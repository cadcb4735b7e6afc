"""How far an experiment is, as plain data and as text: what ``reality-check status`` shows.

Read from the storage's records and from what each worker last wrote into ``logs/``, so it works on
any machine that sees both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from reality_check.campaign import Campaign
from reality_check.config import load_experiment
from reality_check.cost import spent
from reality_check.errors import UsageError
from reality_check.processes import is_alive, shares_process_ids
from reality_check.search import FrozenTrial, Stage, lost_its_worker, state_name
from reality_check.view import (
    UNIT_NAMES,
    duration,
    overview,
    seconds_left,
    stage_rows,
    worker_states,
)


def find_folder(given: str) -> Path:
    """The output folder that a folder, a YAML file or the name of an experiment means.

    Raises:
        UsageError: there is no such folder.
    """
    folder = Path(given)
    if (folder / "experiment.yaml").exists():
        return folder
    if folder.is_dir():
        raise UsageError(
            f"{given} is not an output folder of reality-check: it has no experiment.yaml. "
            "Name one that `reality-check run` made, such as runs/quickstart."
        )
    by_name = Path("runs") / load_experiment(given).name
    if not (by_name / "experiment.yaml").exists():
        raise UsageError(f"{given} has not been run here: there is no {by_name}; name its folder.")
    return by_name


def status(campaign: Campaign) -> dict[str, Any]:
    """The state of an experiment; docs/status.md lists the keys."""
    told = {_key(state["worker"]): state for state in worker_states(campaign.out_dir)}
    units = {(unit.method, unit.stage): unit.study for unit in campaign.units()}
    stages = [
        {
            "method": row.method,
            "stage": row.stage,
            "wanted": row.wanted,
            "done": row.done,
            "best": row.best,
            "mean_seconds": row.seconds,
            **_attempts(units.get((row.method, row.stage))),
        }
        for row in stage_rows(campaign)
    ]
    running = [
        _running(campaign, method, stage, trial, told)
        for (method, stage), study in units.items()
        for trial in study.trials()
        if state_name(trial) == "running" and "taken" not in trial.user_attrs
    ]
    running += [_between(campaign, state) for state in told.values()]
    working = sum(entry["alive"] is not False for entry in running)
    failed = any(stage["failure"] for stage in stages) or any(
        study.failure() for study in units.values()
    )
    complete = campaign.is_complete()
    return {
        "experiment": campaign.experiment.name,
        "folder": str(campaign.out_dir),
        "state": _state(complete, failed, working),
        "seconds_left": None if complete else seconds_left(stage_rows(campaign), working or 1),
        "hours": _hours(units.values()),
        "failures": [
            {"method": method, "stage": stage, "reason": study.failure()["message"]}  # type: ignore[index]
            for (method, stage), study in units.items()
            if study.failure()
        ],
        "stages": stages,
        "running": running,
    }


def _state(complete: bool, failed: bool, working: int) -> str:
    if complete or failed:
        return "complete" if complete else "failed"
    return "running" if working else "stopped"


def _key(worker: dict[str, Any]) -> tuple[str, str | None, int]:
    return worker["host"], worker.get("namespace"), worker["pid"]


def _attempts(study: Stage | None) -> dict[str, Any]:
    """What else became of the trials of a stage."""
    trials = [] if study is None else study.trials()
    ended = [t for t in trials if state_name(t) == "failed" and "taken" not in t.user_attrs]
    lost = [t for t in ended if lost_its_worker(t)]
    slots = {t.user_attrs.get("slot") for t in lost}
    retried = {t.user_attrs.get("slot") for t in trials if t not in ended} & slots
    complete = {} if study is None else study.complete()
    return {
        "failure": None if study is None else (study.failure() or {}).get("message"),
        "diverged": sum("diverged" in trial.user_attrs for trial in complete.values()),
        "failed": [
            {"slot": t.user_attrs.get("slot"), "reason": t.user_attrs["error"]}
            for t in ended
            if "error" in t.user_attrs
        ],
        "lost": len(lost),
        "retried": len(retried),
    }


def _running(
    campaign: Campaign,
    method: str,
    stage: str,
    trial: FrozenTrial,
    told: dict[tuple[str, str | None, int], dict[str, Any]],
) -> dict[str, Any]:
    """One running trial, with what its worker last said; that worker is taken out of ``told``."""
    worker = trial.user_attrs.get("worker")
    slot = trial.user_attrs.get("slot")
    state: dict[str, Any] = {}
    if worker is not None and _key(worker) in told:
        said = told.pop(_key(worker))
        same = (said.get("method"), said.get("doing"), said.get("slot")) == (method, stage, slot)
        # What it said of another trial still tells where it is.
        state = said if same else {key: said.get(key) for key in ("number", "device", "time")}
    entry = _entry(campaign, worker, state)
    entry["device"] = entry["device"] or trial.user_attrs.get("device")
    if entry["since"] is None and trial.datetime_start is not None:
        entry["since"] = trial.datetime_start.timestamp()
    return {"method": method, "stage": stage, "slot": slot, **entry}


def _between(campaign: Campaign, state: dict[str, Any]) -> dict[str, Any]:
    """A worker that the storage knows no running trial of: it waits, starts or ends one."""
    unit = {key: state.get(key) for key in ("method", "slot")}
    stage = state["doing"] if state.get("method") is not None else None
    return {**unit, "stage": stage, **_entry(campaign, state["worker"], state)}


def _entry(
    campaign: Campaign, worker: dict[str, Any] | None, state: dict[str, Any]
) -> dict[str, Any]:
    alive = is_alive(worker) if worker is not None and shares_process_ids(worker) else None
    log = campaign.out_dir / "logs" / f"worker_{state.get('number')}.log"
    return {
        "host": None if worker is None else worker["host"].partition("/")[0],
        "pid": None if worker is None else worker["pid"],
        "alive": alive,
        "device": state.get("device"),
        "since": state.get("since"),
        "doing": state.get("doing"),
        "fold": state.get("fold"),
        "folds": campaign.experiment.protocol.split.folds,
        "epoch": state.get("epoch"),
        "max_epochs": state.get("max_epochs"),
        "last_word": state.get("time"),
        "log": str(log) if log.exists() else None,
    }


def _hours(studies: Iterable[Stage]) -> dict[str, float]:
    """Hours of processes, or of GPUs, by kind of device, over all attempts.

    Those that run, and those that lost their worker, count up to their last heartbeat.
    """
    found: dict[str, float] = {}
    for study in studies:
        for trial in study.trials():
            kind, hours = spent(trial)
            found[kind] = found.get(kind, 0.0) + hours
    return {kind: round(hours, 4) for kind, hours in sorted(found.items()) if hours}


def print_status(campaign: Campaign, as_json: bool = False, again: bool = False) -> str:
    """Print the state of an experiment and return it in a word; ``again`` clears a terminal."""
    state = status(campaign)
    if as_json:
        print(json.dumps(state), flush=True)
    else:
        console, shown = Console(), show(campaign, state)
        if again:
            console.clear()
        console.print(shown)
    return str(state["state"])


# -- as text -------------------------------------------------------------------------------------


def show(campaign: Campaign, state: dict[str, Any]) -> Group:
    """The state as tables and sentences that fit a terminal of 80 columns."""
    parts: list[Any] = [
        Text(f"{state['experiment']} in {state['folder']}:"),
        overview(stage_rows(campaign)),
    ]
    if state["running"]:
        parts += [Text(), _table(state)]
    parts += [Text(line) for line in _sentences(state)]
    return Group(*parts)


def _table(state: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("running", "how far", "for", "process", "log"):
        table.add_column(name, overflow="fold")
    for entry in state["running"]:
        log = entry["log"] and Path(entry["log"]).name
        since = entry["since"]
        ago = "" if since is None else duration(max(time.time() - since, 0.0))
        table.add_row(_what(entry), _how_far(entry), ago, _where(entry), log or "")
    return table


def _what(entry: dict[str, Any]) -> str:
    if entry["stage"] is None:
        return entry["doing"] or "starting"
    slot = "" if entry["slot"] is None else f" {entry['slot'] + 1}"
    name = f"{UNIT_NAMES[entry['stage']]}{slot}"
    return f"{entry['method']}: {name}" if entry["method"] else name


def _how_far(entry: dict[str, Any]) -> str:
    if entry["alive"] is False:
        return "its worker is gone; to be taken up again"
    if entry["fold"] is None:
        return ""
    most = f"/{entry['max_epochs']}" if entry["max_epochs"] else ""
    fold = "" if entry["stage"] == "complete" else f"fold {entry['fold'] + 1}/{entry['folds']}, "
    return f"{fold}epoch {entry['epoch'] or 0}{most}"


def _where(entry: dict[str, Any]) -> str:
    if entry["host"] is None:
        return ""
    device = f", {entry['device']}" if entry["device"] else ""
    return f"{entry['host']} {entry['pid']}{device}"


def _sentences(state: dict[str, Any]) -> list[str]:
    lines = []
    for stage in state["stages"]:
        name = f"{stage['method']}, {stage['stage']}"
        if stage["lost"]:
            times = "once" if stage["lost"] == 1 else f"{stage['lost']} times"
            lines.append(
                f"{name}: lost a worker {times}; {stage['retried']} trials taken up again."
            )
        if stage["diverged"]:
            lines.append(f"{name}: {stage['diverged']} diverged, and count with value 0.")
    for found in state["failures"]:
        lines.append(f"Stopped: {found['method']}, {found['stage']}: {found['reason']}")
    if state["hours"]:
        used = (f"{_amount(h)} {_HOURS.get(k, f'hours on {k}')}" for k, h in state["hours"].items())
        lines.append(f"Used, with lost attempts: {', '.join(used)}.")
    lines.append(_last_line(state))
    return lines


_HOURS = {"cuda": "GPU hours", "cpu": "hours of CPU processes"}


def _amount(hours: float) -> str:
    return f"{hours:.2f}" if hours < 10 else f"{hours:.0f}"


def _last_line(state: dict[str, Any]) -> str:
    if state["state"] == "complete":
        return f"Complete. Report: {Path(state['folder']) / 'report.html'}"
    left = state["seconds_left"]
    guess = f"; about {duration(left)} to go" if left else ""
    working = sum(entry["alive"] is not False for entry in state["running"])
    who = "1 worker" if working == 1 else f"{working or 'no'} workers"
    return f"Not complete{guess}; {who} at work. Logs: {Path(state['folder']) / 'logs'}"
