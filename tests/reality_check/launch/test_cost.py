"""What `check` says a run will take."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss

from reality_check.config import load_experiment
from reality_check.data import load_dataset
from reality_check.launch import cost
from reality_check.launch.cost import CostEstimate, estimate_cost
from reality_check.utils.errors import UsageError

CPU = torch.device("cpu")
#: 40 classes of 4 images: 20 to test, the others 10 + 10 in each of two folds.
TEST, VALIDATION = 80, 40


def estimate(tiny: Path, *overrides: str) -> CostEstimate:
    experiment = load_experiment(tiny, overrides)
    return estimate_cost(experiment, load_dataset(experiment.dataset), CPU)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of the first method takes 1 s, and one of the others 10 s."""

    def measure(prepared: object, method: object, *_: object) -> cost._Times:
        epoch = 1.0 if getattr(method, "name", "") == "normalized_softmax" else 10.0
        return cost._Times(
            1000, 2.0, epoch, 0.01, lambda samples, more: 0.001 * samples * (1 + 2 * more)
        )

    monkeypatch.setattr(cost, "_measure", measure)
    monkeypatch.setattr(time, "process_time", lambda: 5.0)


@pytest.mark.usefixtures("timed")
def test_all_that_a_run_does_counts(tiny: Path) -> None:
    """By hand, with the figures above: 3 epochs at most, each evaluated."""
    found = estimate(tiny, "protocol.training.patience=1", "protocol.reproductions=2")
    overhead = 2 + cost._RECORD_SECONDS
    evaluation = VALIDATION * (0.01 + 0.001)
    scoring = TEST * (0.01 + 2 * 0.003)
    fold = overhead + 3 + (2 + 3) * evaluation
    reproduction = 2 * (fold + scoring) + 2 * TEST * 0.003
    final = overhead + 3 + scoring
    baselines = (2 * 2 + 1) * (2 + 2 * TEST * (0.01 + 0.003))
    fixed = 2 * 5 + cost._REPORT_SECONDS + cost._METHOD_REPORT_SECONDS + baselines
    assert found.trainings == 2 * 2 + 2 * 2 + 2
    assert found.most == pytest.approx(fixed + 2 * 2 * fold + 2 * reproduction + 2 * final)
    assert found.least == found.most, "with this patience the third epoch is the first to stop at"


@pytest.mark.usefixtures("timed")
def test_a_race_takes_fewer_trainings_and_keeps_networks(tiny: Path) -> None:
    def subsets(**keys: object) -> CostEstimate:
        search = {"kind": "subsets", "trials": 10, "budget": 3} | keys
        rest = "protocol.categories=[aggregate]", "protocol.reproductions=1"
        return estimate(tiny, f"protocol.search={json.dumps(search)}", *rest)

    whole, race, own = subsets(), subsets(race=[0.7]), subsets(race=[0.7], retrain="none")
    assert whole.trainings == 2 * 10 + 2 * 7
    assert race.trainings == 10 + 7 + 2 * 7
    assert own.trainings == 10 + 7
    assert own.most < race.most < whole.most
    assert (whole.kept_bytes, race.kept_bytes) == (0, 0)
    assert own.kept_bytes == 2 * 7 * 1000
    assert subsets(retrain="none").kept_bytes == 2 * 10 * 1000


@pytest.mark.usefixtures("timed")
def test_every_method_counts_with_its_own_time(tiny: Path) -> None:
    one = estimate(tiny, "protocol.categories=[aggregate]")
    both = estimate(
        tiny,
        "protocol.categories=[aggregate]",
        "methods=[quick/normalized_softmax,quick/contrastive]",
    )
    trainings = one.trainings
    assert both.trainings == 2 * trainings
    slower = trainings * 3 * (10 - 1)  # epochs of 10 s instead of 1 s
    fixed = 2 * 5 + cost._REPORT_SECONDS + 3 * (2 + 2 * TEST * (0.01 + 0.003))
    assert both.most == pytest.approx(2 * one.most - fixed + slower)


@pytest.mark.usefixtures("timed")
def test_early_stops_count_in_the_lower_bound(tiny: Path) -> None:
    given = ["protocol.training.max_epochs=50", "protocol.training.evaluate_every=2"]
    found = estimate(tiny, *given, "protocol.training.patience=5")
    # Best at the 2nd epoch; the first evaluation more than 5 epochs later is that of the 8th.
    assert (
        cost._fewest_epochs(
            load_experiment(tiny, [*given, "protocol.training.patience=5"]),
            load_experiment(tiny).methods[0],
        )
        == 8
    )
    assert found.least < found.most / 3
    endless = estimate(tiny, *given, "protocol.training.patience=null")
    assert endless.least == endless.most == pytest.approx(found.most)


@pytest.mark.parametrize(
    ("happen", "words"), [(lambda value: value * torch.nan, "nan"), (sys.exit, r"sys\.exit")]
)
def test_a_training_that_fails_in_these_steps_is_a_sentence(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, happen: Callable[[Any], Any], words: str
) -> None:
    """After five calls, which the check of the loss alone does not make."""
    original, calls = NormalizedSoftmaxLoss.forward, iter(range(99))

    def forward(self: Any, *given: Any) -> Any:
        value = original(self, *given)
        return value if next(calls) < 5 else happen(value)

    monkeypatch.setattr(NormalizedSoftmaxLoss, "forward", forward)
    with pytest.raises(UsageError, match=f"method 'normalized_softmax': its training .*{words}"):
        estimate(tiny)


def test_it_is_measured_in_moments(tiny: Path) -> None:
    started = time.perf_counter()
    found = estimate(tiny)
    assert 0 < found.least <= found.seconds <= found.most
    assert time.perf_counter() - started < 60
