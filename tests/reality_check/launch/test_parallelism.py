"""How many processes may train at a time: on pretended GPUs, since few machines have several."""

from __future__ import annotations

import pytest
import torch
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.launch.parallelism import Parallelism
from reality_check.utils.errors import UsageError


def check(device: str, gpus: int, monkeypatch: pytest.MonkeyPatch, **numbers: object) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    experiment = load_experiment(TINY, [f"device={device}"])
    Parallelism(**numbers).check(experiment)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("device", "gpus", "text"),
    [
        ("cuda:0", 2, r"device=cuda:0 is one GPU, but .*=2 needs one for each .* device: cuda,"),
        ("cuda", 1, r"=2 needs a GPU for each process, but this machine has 1; write --proc.* 1,"),
        ("auto", 1, r"=2 needs a GPU for each process, but this machine has 1"),
    ],
)
def test_processes_that_train_together_have_a_gpu_each(
    device: str, gpus: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=text):
        check(device, gpus, monkeypatch, processes_per_network=2)


@pytest.mark.parametrize(
    ("device", "gpus", "processes"),
    [("cuda", 2, 2), ("auto", 4, 2), ("auto", 0, 2), ("cpu", 1, 2), ("cuda:0", 1, 1)],
)
def test_what_fits_is_allowed(
    device: str, gpus: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(device, gpus, monkeypatch, processes_per_network=processes)


def test_devices_stand_above_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    check("cuda:0", 2, monkeypatch, processes_per_network=2, devices=[0, 1])
