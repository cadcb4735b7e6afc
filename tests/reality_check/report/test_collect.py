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
    _gpu_settings,
    _gpus,
    _parallel_methods,
    _rows,
    costs,
)
from reality_check.report.run_facts import run_facts
from reality_check.results import Cost, MethodResults, TrialRecord
from reality_check.studies.trial import StoredTrial

ASKED = ["recall_at_2", "NMI", "separability", "binary_precision_at_1", "dropout_precision_at_1"]


class Scored:
    """The reproductions of one method: one was scored, one diverged."""

    name = "tiny/m/reproductions"

    def __init__(self, scores: Any) -> None:
        self._trials = {
            0: StoredTrial(0, 0, "complete", scores=scores),
            1: StoredTrial(1, 1, "complete", diverged="the loss became nan"),
        }

    def complete(self) -> dict[int, StoredTrial]:
        return self._trials


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
    runs = tuple(
        TrialRecord("m", "reproductions", run, "complete", search=1, retrained=4) for run in (0, 1)
    )
    method = MethodResults("m", "L", reproductions=runs, normalize_embeddings=normalize)
    study = Scored({"ensemble": scored(normalize)})
    rows = _rows(experiment, method, Stage.REPRODUCTIONS, cast(Any, study))
    names = [{row.metric for row in rows if row.reproduction == run} for run in (0, 1)]
    assert names[0] == names[1]
    assert ("precision_at_1_raw" in names[1]) == normalize
    assert {row.value for row in rows if row.reproduction == 1} == {0.0}
    assert {(row.search, row.trial) for row in rows} == {(1, 4)}


def attempts(*notes: dict[str, Any]) -> Any:
    trials = [StoredTrial(0, 0, "complete", **own) for own in notes]
    return SimpleNamespace(trials=lambda: trials)


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
        number: StoredTrial(
            number,
            0,
            "complete",
            started=datetime.fromtimestamp(start),
            trial_index=number,
            ended=datetime.fromtimestamp(start + 10),
        )
        for number, start in enumerate(starts)
    }
    study: Any = SimpleNamespace(about=lambda: about, complete=lambda: trials)
    assert _parallel_methods({("a", Stage.SEARCH, 0): study}) == named


def test_each_kind_of_gpu_is_named_with_its_attempts() -> None:
    experiment = load_experiment("quickstart", ["protocol.training.tf32=true"])
    old, new = {"gpu": "V100, driver 1"}, {"gpu": "A100, driver 2"}
    facts = dict(run_facts(experiment, {}, {}, _gpus({("a", Stage.SEARCH, 0): attempts(old, {})})))
    assert facts["GPU"] == "V100, driver 1, TF32 on"
    stages = {
        ("a", Stage.SEARCH, 0): attempts(old, new, new),
        ("a", Stage.REPRODUCTIONS, 0): attempts(new),
    }
    facts = dict(run_facts(experiment, {}, {}, _gpus(stages)))
    words = "A100, driver 2, TF32 on (3 trials); V100, driver 1, TF32 on (1 trial)"
    assert facts["GPU"] == words
    assert "GPU" not in dict(run_facts(experiment, {}, {}, _gpus({})))


def test_what_made_steps_on_a_gpu_faster_is_named_by_method() -> None:
    experiment = load_experiment("quickstart")
    fast, slow = {"gpu_settings": "CUDA graph"}, {"gpu_settings": "plain; no graph, since"}
    stages = {
        ("a", Stage.SEARCH, 0): attempts(fast, fast, {}),
        ("a", Stage.REPRODUCTIONS, 0): attempts(slow),
        ("b", Stage.SEARCH, 0): attempts(fast),
        ("c", Stage.SEARCH, 0): attempts(fast),
        ("", Stage.BASELINES, 0): attempts({}),
    }
    facts = dict(run_facts(experiment, {}, {}, _gpus(stages), _gpu_settings(stages)))
    assert facts["GPU settings"] == (
        "a: CUDA graph (2 trials); plain; no graph, since (1 trial). b, c: CUDA graph"
    )
    assert "GPU settings" not in dict(run_facts(experiment, {}, {}, _gpus({}), _gpu_settings({})))
