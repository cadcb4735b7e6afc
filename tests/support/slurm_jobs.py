"""The tiny experiment as SLURM jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reality_check.config import Experiment, compose
from reality_check.config.layers import merge
from reality_check.config.yaml_text import read_yaml
from reality_check.launch.parallelism import Parallelism
from reality_check.results import ExperimentResults
from support.paths import TINY

#: Of each of the searches.
TRIALS, SEARCHES = 2, 2
#: Category, reproduction, metric and value of every row.
Scores = list[tuple[Any, ...]]


def plain(epochs: int = 40, **slurm: Any) -> dict[str, Any]:
    """The tiny experiment with fold runs that last some seconds."""
    training = {"max_epochs": epochs, "patience": None}
    changes = {
        "protocol": {
            "training": training,
            "search": {"kind": "repeated", "trials": TRIALS, "repeats": SEARCHES},
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


def jobs_of(out: Path) -> list[str]:
    try:
        return list(json.loads((out / "slurm.json").read_text()).values())
    except OSError:
        return []
