"""The tiny experiment as jobs of SLURM or another scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reality_check.config import Experiment, compose
from reality_check.config.layers import merge
from reality_check.config.yaml_text import read_yaml
from reality_check.launch.parallelism import Parallelism
from reality_check.results import ExperimentResults
from reality_check.studies.output_folder import load_locked
from reality_check.studies.recorded_experiment import RecordedExperiment
from support.paths import TINY

#: Of the search.
TRIALS = 2
#: Category, reproduction, metric and value of every row.
Scores = list[tuple[Any, ...]]


def plain(epochs: int = 100, **slurm: Any) -> dict[str, Any]:
    """The tiny experiment with fold runs that last a part of a second at least."""
    training = {"max_epochs": epochs, "patience": None}
    changes = {
        "protocol": {
            "training": training,
            "search": {"trials": TRIALS},
            "categories": ["aggregate", "ensemble"],
        },
        "slurm": {"hours": 0.5, "gpus": 1, "cpus": 1, "memory": "200M", **slurm},
    }
    return merge(read_yaml(TINY), changes)


def experiment(**slurm: Any) -> Experiment:
    return compose(plain(**slurm))


def scores(results: ExperimentResults) -> Scores:
    return sorted((r.category, r.reproduction, r.metric, r.value) for r in results.rows)


def jobs(count: int) -> Parallelism:
    return Parallelism(count, launcher="slurm")


def jobs_of(out: Path, scheduler: str = "slurm") -> list[str]:
    try:
        return list(json.loads((out / f"{scheduler}.json").read_text()).values())
    except OSError:
        return []


def search_trials(out: Path) -> list[Any]:
    recorded = RecordedExperiment(load_locked(out), out)
    (search,) = [unit for unit in recorded.states().ready() if unit.stage == "search"]
    assert len(search.complete) == TRIALS
    assert sum(trial.state == "complete" for trial in search.attempts) == TRIALS
    return list(search.attempts)


def all_trials(out: Path) -> list[Any]:
    """The trials of all stages, each with one complete attempt and nothing left over."""
    wanted = {"search": TRIALS, "reproductions": 1, "baselines": 1}
    found = []
    for unit in RecordedExperiment(load_locked(out), out).states().ready():
        trials = unit.attempts
        complete = [trial for trial in trials if trial.state == "complete"]
        assert sorted(trial.trial_index for trial in complete) == [*range(wanted.pop(unit.stage))]
        assert all(trial.state in ("complete", "failed") for trial in trials)
        found += trials
    assert not wanted
    return found


def progress(out: Path, number: int) -> dict[str, Any]:
    """What a worker said last."""
    try:
        state: dict[str, Any] = json.loads((out / "logs" / f"worker_{number}.json").read_text())
    except (OSError, ValueError):
        return {}
    return state


def trains(out: Path, number: int) -> bool:
    """Whether a worker is in the middle of a fold run."""
    return bool(progress(out, number).get("epoch", 0) > 2)
