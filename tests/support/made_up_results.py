"""A made-up experiment: 4 methods, 3 categories, 5 reproductions, and things gone wrong."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np

from reality_check.config.metrics import CATEGORIES, METRICS
from reality_check.results import (
    Deviation,
    ExperimentResults,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)

RUNS = 5
TRIALS = 8
#: Mean MAP@R of each method; the names are awkward on purpose.
LEVELS = {"warped": 0.28, "my_loss_50%": 0.277, "<b>x</b>": 0.25, "late & slow": 0.24}
OFFSETS = {"aggregate": -0.05, "ensemble": 0.0, "complete": -0.01}


def trial(method: str, trial_index: int, generator: random.Random) -> TrialRecord:
    """One complete search trial with four folds and their curves."""
    level = LEVELS[method] + 0.15 - 0.1 * generator.random()
    folds = tuple(level + generator.gauss(0, 0.01) for _ in range(4))
    curves = tuple(
        tuple((epoch, fold * (1 - 0.5 ** (1 + epoch / 4))) for epoch in range(2, 22, 2))
        for fold in folds
    )
    return TrialRecord(
        trial_index=trial_index,
        state="complete",
        value=sum(folds) / 4,
        params={"loss.scale": generator.uniform(1, 100), "learning_rates.loss": 1.5e-6},
        fold_values=folds,
        fold_epochs=(20, 20, 18, 20),
        seconds=generator.uniform(600, 900),
        curves=curves,
    )


def run_record(trial_index: int, state: str = "complete") -> TrialRecord:
    """One reproduction or complete run."""
    seconds = 700.0 + trial_index if state == "complete" else None
    value = 0.4 if state == "complete" else None
    return TrialRecord(trial_index, state, value=value, seconds=seconds)


def method_results(name: str, runs: int, generator: random.Random) -> MethodResults:
    """A searched method of which ``runs`` of all reproductions and complete runs are done."""
    states = ["complete"] * runs + ["running"] * (RUNS - runs > 0)
    search = tuple(trial(name, trial_index, generator) for trial_index in range(TRIALS))
    return MethodResults(
        name=name,
        loss="pml_extensions.losses.WarpedSoftmaxLoss",
        search=search,
        reproductions=tuple(run_record(i, s) for i, s in enumerate(states)),
        final=tuple(run_record(i, s) for i, s in enumerate(states)),
        retrained=((0, max(search, key=lambda record: record.value or 0.0).trial_index),),
        searched=("loss.scale", "learning_rates.loss"),
    )


def result_rows(runs: dict[str, int], generator: random.Random) -> tuple[ResultRow, ...]:
    """Rows of every category and metric for the first ``runs[method]`` reproductions."""
    extra = {"mean_average_precision_at_r": 0.0, "r_precision": 0.1, "precision_at_1": 0.4}
    return tuple(
        ResultRow("awkward_names", method, category, run, metric, value)
        for method, count in runs.items()
        for category in CATEGORIES
        for run in range(count)
        for metric in METRICS
        for value in [LEVELS[method] + OFFSETS[category] + extra[metric] + generator.gauss(0, 3e-3)]
    )


def make_results(runs: dict[str, int] | None = None, finished: bool = True) -> ExperimentResults:
    """The made-up experiment; by default the last method has two of five reproductions, as if
    no more were wanted."""
    generator = random.Random(0)
    runs = runs if runs is not None else dict(zip(LEVELS, (5, 5, 5, 2), strict=True))
    methods = [method_results(name, runs.get(name, 0), generator) for name in LEVELS]
    spoilt = dataclasses.replace(
        methods[1].search[3], value=0.0, diverged="loss is NaN at epoch 3", fold_values=(),
        curves=(), attempts=2,
    )  # fmt: skip
    search = (*methods[1].search[:3], spoilt, *methods[1].search[4:])
    methods[1] = dataclasses.replace(methods[1], search=search)
    config: dict[str, Any] = {
        "name": "awkward_names",
        "protocol": {
            "name": "quick",
            "search": {"trials": TRIALS},
            "reproductions": RUNS,
            "categories": list(CATEGORIES),
        },
        "methods": [{"name": name} for name in LEVELS],
        "seed": 0,
    }
    return ExperimentResults(
        name="awkward_names",
        protocol="quick",
        reference="mlrc",
        finished=finished,
        methods=tuple(methods),
        rows=result_rows(runs, generator),
        baselines=tuple(
            ResultRow("awkward_names", name, "aggregate", 0, metric, value)
            for name, value in (("raw pixels", 0.03), ("untrained trunk", 0.13))
            for metric in METRICS
        ),
        deviations=(
            Deviation("search trials", "8 trials per method; mlrc has 50."),
            Deviation("reproductions", "late & slow has 2 of 5 <reproductions>.", serious=True),
        ),
        facts=(("Data set", "CUB-200-2011"), ("Test classes", "100"), ("torch", "2.9 <cpu>")),
        config=config,
    )


ASKED = {"recall_at_2": "R@2", "AMI": "AMI", "separability": "separability (ratio)"}


def with_other_metrics(results: ExperimentResults) -> ExperimentResults:
    """The same with three more metrics, whose values follow the run: 0.1, 0.2, ... and 1, 2, ..."""
    rows = [
        dataclasses.replace(row, metric=name, value=(row.reproduction + 1) / 10 * factor)
        for row in results.rows
        if row.metric == "precision_at_1"
        for name, factor in zip(ASKED, (1.0, -0.5, 10.0), strict=True)
    ]
    baselines = [
        dataclasses.replace(row, metric=name, value=value)
        for row in results.baselines
        if row.metric == "precision_at_1"
        for name, value in zip(ASKED, (0.25, 0.5, 1.5), strict=True)
    ]
    protocol = results.config["protocol"] | {"final_metrics": [*ASKED, "NMI"]}
    return dataclasses.replace(
        results,
        rows=(*results.rows, *rows),
        baselines=(*results.baselines, *baselines),
        config=results.config | {"protocol": protocol},
    )


def with_queries(results: ExperimentResults, classes: int = 24) -> ExperimentResults:
    """The same with scores of 5 queries of each class, whose means are the recorded metrics."""
    recorded = {(r.method, r.category, r.reproduction, r.metric): r.value for r in results.rows}
    labels = np.repeat(np.arange(classes), 5)
    draw = np.random.default_rng(0)
    hard = draw.normal(0, 0.08, classes)[labels]
    own = {m: draw.normal(0, 0.01, classes)[labels] for m in LEVELS}

    def load(method: str, category: str, reproduction: int) -> np.ndarray | None:
        keys = [(method, category, reproduction, metric) for metric in METRICS]
        if not set(keys) <= set(recorded):
            return None
        scores = (
            hard + own[method] + np.random.default_rng(reproduction).normal(0, 0.1, len(labels))
        )
        scores = scores - scores.mean()
        return np.stack([scores + recorded[key] for key in keys])

    names = tuple(f"class {i}" for i in range(classes))
    return dataclasses.replace(results, queries=QueryScores(labels, names, load))
