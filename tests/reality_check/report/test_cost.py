"""Hours by method, stage and device, out of the attempts' own records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.report.cost import costs
from reality_check.results import Cost
from reality_check.studies.trial import StoredTrial


def stage(*attempts: dict[str, Any]) -> Any:
    trials = [StoredTrial(0, 0, "complete", **notes) for notes in attempts]
    return SimpleNamespace(trials=lambda: trials)


def test_hours_are_of_all_processes_and_attempts_by_kind_of_device() -> None:
    gpu = {"seconds": 1800.0, "device": "cuda:1", "processes": 2}
    cpu = {"seconds": 3600.0, "device": "cpu"}
    stages = {
        ("a", Stage.SEARCH): stage(gpu, gpu | {"diverged": "nan"}, cpu | {"processes": 4}),
        ("a", Stage.REPRODUCTIONS): stage({"trial_index": 0}),
        ("", Stage.BASELINES): stage({"seconds": 360.0}),
    }
    assert costs(stages) == (
        Cost("a", "search", "cuda", 2, 2.0),
        Cost("a", "search", "cpu", 1, 4.0),
        Cost("", "baselines", "unknown", 1, 0.1),
    )
