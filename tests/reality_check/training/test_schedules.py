"""Learning rates over a training, against hand-computed values and torch's schedulers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from reality_check.config.method import ValueSchedule
from reality_check.config.training import Schedule, Training
from reality_check.training.schedules import rate_factor


def factors(count: int, per_epoch: int, epochs: int, **values: Any) -> list[float]:
    schedule = Schedule(**values)
    return [rate_factor(schedule, i, per_epoch, epochs) for i in range(count)]


def test_a_constant_rate_stays() -> None:
    assert factors(6, 2, 3) == [1.0] * 6


def test_steps_at_epochs() -> None:
    found = factors(8, 2, 4, kind="step", at=[1, 3], factor=0.1)
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01])


def test_steps_every_so_many_epochs() -> None:
    found = factors(6, 1, 6, kind="step", every=2, factor=0.5)
    assert found == pytest.approx([1, 1, 0.5, 0.5, 0.25, 0.25])


def torch_factors(make: Any, count: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_cosine_is_that_of_torch() -> None:
    found = factors(10, 1, 10, kind="cosine", end=0.01)
    schedulers = torch.optim.lr_scheduler
    peer = torch_factors(lambda o: schedulers.CosineAnnealingLR(o, 10, eta_min=0.01), 10)
    assert found == pytest.approx(peer)


def test_polynomial_by_iterations_is_that_of_torch() -> None:
    found = factors(12, 3, 4, kind="polynomial", power=2, per="iteration")
    schedulers = torch.optim.lr_scheduler
    peer = torch_factors(lambda o: schedulers.PolynomialLR(o, total_iters=12, power=2), 12)
    assert found == pytest.approx(peer)


def test_a_schedule_by_epochs_is_flat_within_them() -> None:
    found = factors(6, 3, 2, kind="cosine")
    assert found == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5])


def test_warm_up_multiplies_whatever_else_there_is() -> None:
    warm = factors(6, 2, 3, kind="step", at=[1], factor=0.5, warmup_iterations=4, warmup_start=0.2)
    assert warm == pytest.approx([0.2, 0.4, 0.6 * 0.5, 0.8 * 0.5, 0.5, 0.5])


def test_beyond_the_end_nothing_grows_again() -> None:
    assert rate_factor(Schedule(kind="cosine", end=0.1), 100, 1, 10) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"every": 2}, ["every belongs to", "step", "constant"]),
        ({"kind": "cosine", "power": 2}, ["power belongs to", "polynomial", "cosine"]),
        ({"kind": "step"}, ["either at", "or every"]),
        ({"kind": "step", "at": [3], "every": 2}, ["either at", "or every"]),
        ({"kind": "step", "at": [3, 2]}, ["rising order", "[3, 2]"]),
        ({"kind": "steps"}, ["step"]),
    ],
)
def test_keys_that_do_not_belong_together_are_refused(
    values: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValidationError) as caught:
        Schedule(**values)
    for word in words:
        assert word in str(caught.value)


PART = {"name": "SGD", "lr": 0.1}
PARTS = {"trunk": PART, "embedder": PART, "loss": PART}


def training(**values: Any) -> Training:
    return Training.model_validate({"optimizers": PARTS, "patience": None, **values})


def test_an_epoch_can_be_a_pass_over_the_images() -> None:
    assert training(batch_size=32).iterations(100) == 100
    passes = training(batch_size=32, iterations_per_epoch="pass")
    assert [passes.iterations(images) for images in (100, 64, 20)] == [3, 2, 1]


def test_phases_of_fixed_length_share_the_epochs() -> None:
    fixed = training(max_epochs=50, second_phase_epochs=30)
    assert fixed.phase_epochs(two_phases=True) == (20, 30)
    assert fixed.phase_epochs(two_phases=False) == (50, 0)
    # A final training that selects no epoch goes through a second phase of no given length too.
    assert training(max_epochs=50).phase_epochs(two_phases=True) == (38, 12)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"second_phase_epochs": 3, "patience": 5}, ["patience: null"]),
        ({"second_phase_epochs": 9, "max_epochs": 9}, ["less than max_epochs=9"]),
        ({"freeze_batchnorm": "affine"}, ["with_affine"]),
        ({"iterations_per_epoch": "passes"}, ["pass"]),
    ],
)
def test_trainings_that_cannot_be_are_refused(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        training(**values)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "step", "factor": 0.5}, "either at, a list of epochs, or every"),
        ({"kind": "step", "every": 2}, "kind step needs factor"),
        ({"kind": "linear", "every": 2, "factor": 0.5}, "every belongs to .* step, not to linear"),
        ({"kind": "constant", "factor": 0.5}, "factor belongs to .*, not to constant"),
        ({"kind": "cosine", "factor": 0}, "factor must be above 0, got 0"),
        ({"kind": "cosine", "factor": {"low": -1, "high": 1}}, "above 0, got -1"),
        ({"kind": "linear", "factor": 0.5, "epochs": 0}, "whole number of epochs, .* got 0"),
        ({"kind": "step", "factor": 0.5, "every": 2.5}, "whole number of epochs, .* got 2.5"),
        ({"kind": "step", "factor": 0.5, "every": "two"}, "expected a finite number"),
        (
            {"kind": "linear", "factor": 0.5, "epochs": {"low": 2, "high": 9}},
            "int: true in a range",
        ),
        (
            {"kind": "linear", "factor": 0.5, "epochs": {"low": 0, "high": 9, "int": True}},
            "at least 1 .*, got 0",
        ),
        (
            {"kind": "linear", "factor": 0.5, "epochs": {"choices": [2, 2.5]}},
            "whole number of epochs, .* got 2.5",
        ),
        ({"kind": "step", "at": [4, 2], "factor": 0.5}, "rising order"),
        ({"kind": "sine", "factor": 0.5}, "'constant', 'step', 'linear' or 'cosine'"),
    ],
)
def test_a_values_schedule_says_what_is_wrong(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ValueSchedule.model_validate(values)
