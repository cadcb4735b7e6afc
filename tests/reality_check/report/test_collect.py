"""What becomes of records on their way into the report."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from reality_check.config import compose, load_experiment
from reality_check.config.metrics import Stage
from reality_check.evaluation.categories import renamed
from reality_check.evaluation.scoring import Metrics, evaluate_both_geometries
from reality_check.report.collect import (
    _attempts_by,
    _parallel_methods,
    _records,
    _rows,
    costs,
)
from reality_check.report.deviations import _restarts
from reality_check.report.run_facts import run_facts
from reality_check.results import Cost, MethodResults, TrialRecord

ASKED = ["recall_at_2", "NMI", "separability", "binary_precision_at_1", "dropout_precision_at_1"]


class Scored:
    """The reproductions of one method: one was scored, one diverged."""

    name = "tiny/m/reproductions"

    def __init__(self, scores: Any) -> None:
        self.complete = {
            0: TrialRecord(0, "complete", scores=scores),
            1: TrialRecord(1, "complete", diverged="the loss became nan"),
        }


def scored(normalize: bool) -> dict[str, float]:
    """What scoring records of made-up embeddings."""
    embeddings = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    labels = np.repeat(np.arange(3), 4)
    clean = evaluate_both_geometries(embeddings, labels, normalize, ASKED[:-1])
    changed = evaluate_both_geometries(embeddings, labels, normalize)
    return Metrics({**clean, **renamed(changed, "dropout_", ["precision_at_1"])}, {})


@pytest.mark.parametrize("normalize", [True, False])
def test_a_diverged_run_counts_as_0_wherever_a_scored_one_has_a_value(normalize: bool) -> None:
    experiment = compose(
        {
            "name": "tiny",
            "dataset": "glyphs",
            "model": "conv4",
            "protocol": {
                "base": "quick_one_search",
                "final_metrics": ASKED,
                "categories": ["ensemble"],
            },
            "methods": ["contrastive"],
        }
    )
    runs = tuple(TrialRecord(run, "complete", search=1, retrained=4) for run in (0, 1))
    method = MethodResults("m", "L", reproductions=runs, normalize_embeddings=normalize)
    study = Scored({"ensemble": scored(normalize)})
    rows = _rows(experiment, method, Stage.REPRODUCTIONS, cast(Any, study))
    names = [{row.metric for row in rows if row.reproduction == run} for run in (0, 1)]
    assert names[0] == names[1]
    assert ("precision_at_1_raw" in names[1]) == normalize
    assert {row.value for row in rows if row.reproduction == 1} == {0.0}
    assert {(row.search, row.trial) for row in rows} == {(1, 4)}


def attempts(*notes: dict[str, Any]) -> Any:
    trials = [TrialRecord(own.pop("trial_index", None), "complete", **own) for own in notes]
    return SimpleNamespace(attempts=trials)


def test_hours_are_of_all_processes_and_attempts_by_kind_of_device() -> None:
    gpu = {"seconds": 1800.0, "device": "cuda:1", "processes": 2}
    cpu = {"seconds": 3600.0, "device": "cpu"}
    stages = {
        ("a", Stage.SEARCH, 0): attempts(gpu, gpu | {"diverged": "nan"}, cpu | {"processes": 4}),
        ("a", Stage.REPRODUCTIONS, 0): attempts({"trial_index": 0}),
        ("", Stage.BASELINES, 0): attempts({"seconds": 360.0}),
    }
    assert costs(stages) == (
        Cost("a", "search", "cuda", 2, 2.0),
        Cost("a", "search", "cpu", 1, 4.0),
        Cost("", "baselines", "unknown", 1, 0.1),
    )


@pytest.mark.parametrize(
    ("sampler", "starts", "named"),
    [
        ("tpe", (0, 10, 20, 29), ["a"]),  # the last begins before the one before it has ended
        ("tpe", (0, 5, 20, 30), []),  # trial 1 is drawn at random
        ("tpe", (0, 10, 20, 30), []),
        ("random", (0, 0, 0, 0), []),
        ("qmc", (0, 0, 0, 0), []),
        ("my.Sampler", (5, 5, 5, 5), ["a"]),
    ],
)
def test_a_search_is_parallel_where_a_model_drew_while_another_trial_ran(
    sampler: str, starts: tuple[int, ...], named: list[str]
) -> None:
    arguments = {"n_startup_trials": 2} if sampler == "tpe" else {}
    about = {"sampler": sampler, "sampler_arguments": arguments}
    trials = {
        number: TrialRecord(
            number,
            "complete",
            started=datetime.fromtimestamp(start),
            ended=datetime.fromtimestamp(start + 10),
        )
        for number, start in enumerate(starts)
    }
    study: Any = SimpleNamespace(about=about, complete=trials)
    assert _parallel_methods({("a", Stage.SEARCH, 0): study}) == named


@pytest.mark.parametrize(
    ("attribute", "title", "ending"),
    [("gpu", "GPU", ", TF32 on"), ("trained_with", "Trained with", "")],
)
def test_gpus_and_their_settings_are_named_with_their_attempts(
    attribute: str, title: str, ending: str
) -> None:
    experiment = load_experiment("quickstart", ["protocol.training.tf32=true"])

    def facts(stages: Any) -> dict[str, str]:
        both = _attempts_by(stages, "gpu"), _attempts_by(stages, "trained_with")
        return dict(run_facts(experiment, {}, {}, *both))

    old, new = {attribute: "V100, driver 1"}, {attribute: "A100, driver 2"}
    only_old = facts({("a", Stage.SEARCH, 0): attempts(old, {})})
    assert only_old[title] == f"V100, driver 1{ending}"
    stages = {
        ("a", Stage.SEARCH, 0): attempts(old, new, new),
        ("a", Stage.REPRODUCTIONS, 0): attempts(new),
    }
    words = "A100, driver 2 (3 trials); V100, driver 1 (1 trial)"
    assert facts(stages)[title] == f"{words}{ending}"
    assert title not in facts({("a", Stage.SEARCH, 0): attempts({})})


def test_lost_workers_are_restarts() -> None:
    stored = [
        TrialRecord(0, "failed", number=0, error="its worker was lost"),
        TrialRecord(0, "complete", number=1, value=0.5),
        TrialRecord(0, "complete", number=2, value=0.5, duplicate=True),
        TrialRecord(1, "complete", number=3, value=0.4, superseded=True),
        TrialRecord(1, "complete", number=4, value=0.3),
    ]
    study: Any = SimpleNamespace(
        attempts=stored,
        complete={0: stored[1], 1: stored[4]},
        given=[{"x": 0}, {"x": 1}],
    )
    search = tuple(_records(study).values())
    assert [(record.state, record.value, record.attempts) for record in search] == [
        ("complete", 0.5, 2),
        ("complete", 0.3, 1),
    ], "neither a duplicate nor what was superseded is an attempt"
    (restarts,) = _restarts([MethodResults("a", "L", search), MethodResults("b", "L")])
    assert restarts.text.endswith("a lost worker: a 1.")
