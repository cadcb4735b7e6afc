"""Methods that were not run as the others were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.report.treatment import origins
from reality_check.results import TrialRecord


def study(versions: str, *devices: str, gpu: str | None = None, sampler: str | None = None) -> Any:
    trials = {n: TrialRecord(n, "complete", device=d, gpu=gpu) for n, d in enumerate(devices)}
    about = {"versions": versions, "machine": "Linux x86_64", "sampler": sampler}
    return SimpleNamespace(about=about, complete=trials)


def said(**methods: Any) -> list[str]:
    stages = {("", Stage.BASELINES, 0): study("Python 1", "mps")}
    for name, own in methods.items():
        stages |= {(name, Stage.SEARCH, 0): own, (name, Stage.FINAL, 0): study("Python 2", "mps")}
    nobody = cast(Experiment, SimpleNamespace(methods=[]))
    return [deviation.text for deviation in origins(nobody, stages)]


def test_methods_that_ran_alike_are_not_mentioned() -> None:
    one = study("Python 3, torch 2.6", "cpu", "cpu")
    assert said(a=one, b=study("Python 3, torch 2.6", "cpu")) == []


def test_another_optuna_is_named_where_it_draws() -> None:
    def found(sampler: str) -> list[str]:
        return said(**{v: study(f"optuna {v}", sampler=sampler) for v in ("4.9.0", "5.0.0")})

    assert found("random") == found("qmc") == []
    (text,) = found("tpe")
    assert "optuna: 4.9.0: 4.9.0; 5.0.0: 5.0.0. Each version draws other trials" in text


def test_other_software_and_devices_are() -> None:
    texts = said(
        a=study("Python 3, torch 2.6", "cpu"),
        b=study("Python 3, torch 2.7", "cuda:0", gpu="H100"),
        c=study("Python 3, torch 2.7", "cuda:1", "cpu", gpu="H100"),
    )
    assert texts == [
        "Not all methods ran with the same torch: 2.6: a; 2.7: b and c.",
        "Not all methods ran with the same kind of device: cpu: a; H100: b and c.",
    ]
