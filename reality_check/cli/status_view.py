"""The progress of an experiment, as JSON and as text, for ``reality-check status``.

The sources are the records of the storage and what each worker last wrote into ``logs/``, so that
any machine that can read both can show the progress.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from reality_check.cli.columns import name_table
from reality_check.cli.live_view import overview
from reality_check.config.metrics import Stage
from reality_check.launch.slurm_queue import job_states, recorded_jobs
from reality_check.studies.output_folder import stage_name
from reality_check.studies.progress import Row, status, trial_name
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.suite_folder import is_suite
from reality_check.utils.own_names import own_path
from reality_check.utils.text import duration

_HOUR_UNITS = {"cuda": "GPU hours", "cpu": "hours of CPU processes"}


def print_status(recorded: RecordedExperiment, as_json: bool = False, again: bool = False) -> str:
    """Print an experiment's status and return its state; ``again`` clears the terminal first."""
    state = status(recorded)
    if as_json:
        print(json.dumps(state), flush=True)
    else:
        console, shown = Console(), show(state)
        if again:
            console.clear()
        console.print(shown)
    return str(state["state"])


def show(state: dict[str, Any]) -> Group:
    """Return the status as tables and sentences that fit a terminal of 80 columns."""
    # The fields of a row, in order.
    keys = "method", "stage", "search", "done", "wanted", "best", "mean_seconds"
    parts: list[Any] = [
        Text(f"{state['experiment']} in {state['folder']}:"),
        overview([Row(*(stage[key] for key in keys)) for stage in state["stages"]]),
    ]
    if state["running"]:
        parts += [Text(), _running_tasks(state)]
    parts += [Text(line) for line in _sentences(state)]
    return Group(*parts)


def _running_tasks(state: dict[str, Any]) -> Table:
    """Return a table with a row for each worker."""
    table = name_table("running", "how far", "for", "process", "log")
    for entry in state["running"]:
        log = entry["log"] and Path(entry["log"]).name
        since = entry["since"]
        elapsed = "" if since is None else duration(max(time.time() - since, 0.0))
        table.add_row(_task(entry), _progress(entry), elapsed, _process(entry), log or "")
    return table


def _task(entry: dict[str, Any]) -> str:
    """Return in words what a running worker is doing."""
    if entry["stage"] is None:
        return entry["doing"] or "starting"
    name = trial_name(entry["stage"], entry)
    return f"{entry['method']}: {name}" if entry["method"] else name


def _progress(entry: dict[str, Any]) -> str:
    """Return the fold and epoch of a running worker, or that it is gone."""
    if entry["alive"] is False:
        return "its worker is gone; will be retried"
    if entry["fold"] is None:
        return ""
    of_all = f"/{entry['max_epochs']}" if entry["max_epochs"] else ""
    fold = "" if entry["stage"] == Stage.FINAL else f"fold {entry['fold'] + 1}/{entry['folds']}, "
    return f"{fold}epoch {entry['epoch'] or 0}{of_all}"


def _process(entry: dict[str, Any]) -> str:
    """Return host, process id and device of a worker."""
    if entry["host"] is None:
        return ""
    device = f", {entry['device']}" if entry["device"] else ""
    return f"{entry['host']} {entry['pid']}{device}"


def _sentences(state: dict[str, Any]) -> list[str]:
    """Return lines on lost workers, divergence, failures, hours and the time left."""
    lines = []
    for stage in state["stages"]:
        name = f"{stage['method']}, {stage_name(stage['stage'], stage['search'])}"
        if stage["lost"]:
            times = "once" if stage["lost"] == 1 else f"{stage['lost']} times"
            lines.append(f"{name}: lost a worker {times}; {stage['retried']} trials retried.")
        if stage["diverged"]:
            lines.append(f"{name}: {stage['diverged']} diverged, and count with value 0.")
    for failure in state["failures"]:
        title = stage_name(failure["stage"], failure["search"])
        lines.append(f"Stopped: {failure['method']}, {title}: {failure['reason']}")
    if state["hours"]:
        used = [  # with two decimals below 10 hours, else none
            f"{hours:.{2 if hours < 10 else 0}f} {_HOUR_UNITS.get(kind, f'hours on {kind}')}"
            for kind, hours in state["hours"].items()
        ]
        lines.append(f"Used, including lost attempts: {', '.join(used)}.")
    lines += _slurm_jobs(state)
    lines.append(_last_line(state))
    return lines


def _slurm_jobs(state: dict[str, Any]) -> list[str]:
    """Return a line with the jobs of the workers, where SLURM knows them: they may be waiting."""
    jobs = [*recorded_jobs(own_path(_folder_of_run(state), "slurm.json")).values()]
    states = job_states(jobs) if jobs and state["state"] != "complete" else None
    return [f"SLURM: {', '.join(map(' '.join, states.items()))}."] if states else []


def _folder_of_run(state: dict[str, Any]) -> Path:
    """Return the output folder, for a data set of a suite that of the suite."""
    folder = Path(state["folder"])
    return folder.parent if is_suite(folder.parent) else folder


def _last_line(state: dict[str, Any]) -> str:
    """Return a line with the time left and the workers, or the report of a complete run."""
    if state["state"] == "complete":
        return f"Complete. Report: {Path(state['folder']) / 'report.html'}"
    left = state["seconds_left"]
    time_left = f"; about {duration(round(left))} to go" if left else ""
    working = sum(entry["alive"] is not False for entry in state["running"])
    workers = "1 worker" if working == 1 else f"{working or 'no'} workers"
    return f"Not complete{time_left}; {workers} at work. Logs: {_folder_of_run(state) / 'logs'}"
