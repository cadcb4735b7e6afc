"""Whole runs on GPUs: several of them, folds at once, processes together, too little memory."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import simulated_cuda
import torch
from simulated_cuda import Device
from support.gpu_folds import fold_run, glyphs, glyphs_on_a_simulated_gpu

from reality_check.api import run
from reality_check.config import load_experiment
from reality_check.data import make_glyphs
from reality_check.data.store import PixelStore
from reality_check.launch.devices import parse_devices
from reality_check.launch.fold_executors import FoldJob, ProcessExecutor
from reality_check.launch.parallelism import Parallelism
from reality_check.launch.worker import join_process_group
from reality_check.results import ExperimentResults
from reality_check.training.prepared_experiment import pick_device
from reality_check.training.strategy import Strategy
from reality_check.utils.errors import UsageError, WorkFailed

pytestmark = pytest.mark.gpu
#: One of each kind, and corrupted images.
FINAL_METRICS = "[separability, binary_recall_at_1, recall_at_2, dropout_precision_at_1]"
CHANGES = [
    f"protocol.final_metrics={FINAL_METRICS}",
    "protocol.search.trials=1",
    "protocol.training.max_epochs=1",
    "protocol.training.gpu.cuda_graph=false",
    "dataset.classes=32",
]


@pytest.fixture
def two_gpus() -> Iterator[None]:
    if simulated_cuda.current() is None:
        if torch.cuda.device_count() < 2:
            pytest.skip("this machine has one GPU")
        yield
        return
    with simulated_cuda.simulated_cuda(gpus=2):
        yield


def scores(results: ExperimentResults) -> dict[tuple[Any, ...], float]:
    return {(r.category, r.reproduction, r.metric): r.value for r in results.rows}


@pytest.mark.usefixtures("workers_in_this_process", "blank_figures", "two_gpus")
def test_an_experiment_on_two_gpus_scores_as_on_a_cpu(tmp_path: Path, tiny: Path) -> None:
    """Also where memory ran out at first."""
    expected = scores(run(load_experiment(tiny, CHANGES), tmp_path / "cpu"))
    experiment = load_experiment(tiny, [*CHANGES, "device=cuda:0"])
    again = functools.partial(run, experiment, tmp_path / "gpus", Parallelism(devices=[1, 0]))
    if simulated_cuda.current() is not None:
        with (
            simulated_cuda.simulated_cuda(gpus=2, memory=40_000),
            pytest.raises(WorkFailed, match=r"memory is too small .* the same command continues"),
        ):
            again()
    found = scores(again())
    assert found.keys() == expected.keys()
    # Sums in another order: near-ties may swap places, no more.
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=0.05, rel=0.05), key
    # In the test's own process the first worker does it all; it saw its GPU as cuda:0.
    state = json.loads((tmp_path / "gpus" / "logs" / "worker_0.json").read_text())
    assert state["device"] == "cuda:1"


def test_folds_train_at_once(tmp_path: Path) -> None:
    load = glyphs if simulated_cuda.current() is None else glyphs_on_a_simulated_gpu
    tasks = [fold_run(tmp_path, "cuda", lr=lr, max_epochs=1).task for lr in (0.01, 0.02)]
    jobs = [
        FoldJob(task, n, tuple(range(10)), tuple(range(10, 16)), tmp_path / f"fold_{n}")
        for n, task in enumerate(tasks)
    ]
    # Each process has a simulated GPU of its own, so that a second one would show nothing more.
    processes = 2 if simulated_cuda.current() is None else 1
    executor = ProcessExecutor(processes, load, torch.device("cuda"))
    try:
        results = executor.run(jobs, lambda position: None)
    finally:
        executor.close()
    for job, result in zip(jobs, results, strict=True):
        folder = tmp_path / f"alone_{job.fold}"
        rate = job.task.settings.learning_rates["trunk"]
        alone = fold_run(folder, "cuda", lr=rate, max_epochs=1).run()
        assert result.curve[-1]["loss"] == pytest.approx(alone.curve[-1]["loss"], rel=0.01)


@pytest.mark.usefixtures("two_gpus")
def test_processes_of_one_network_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the process group: NCCL needs real ones."""
    begun: list[str] = []
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda backend, **_: begun.append(backend)
    )
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for name, value in (("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    before = torch.cuda.current_device()
    try:
        strategy = join_process_group()
        assert strategy is not None
        assert (strategy.rank, strategy.size, begun) == (1, 2, ["cpu:gloo,cuda:nccl"])
        assert torch.ones(1, device="cuda").device.index == 1
        assert pick_device("cuda") == torch.device("cuda", 1)
        assert pick_device("cuda:0") == torch.device("cuda", 1)
    finally:
        torch.cuda.set_device(before)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    """By its number, among the devices of workers, and for one process too many."""
    count = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"'cuda:{count}' is not here"):
        pick_device(f"cuda:{count}")
    with pytest.raises(UsageError, match=f"device cuda:{count} is not here"):
        parse_devices([0, count])
    assert parse_devices([0, count - 1]) == ("cuda:0", f"cuda:{count - 1}")
    several = Parallelism(processes_per_network=count + 1)
    with pytest.raises(UsageError, match=f"but this machine has {count}"):
        several._check_gpus("cuda")


# -- too little memory --------------------------------------------------------------------------


def test_a_run_that_ran_out_of_memory_goes_on(tmp_path: Path, simulated_gpu: Device) -> None:
    """Wherever it is: while images, network and optimiser are placed, in steps, in evaluation."""
    memory = simulated_gpu.memory[0]
    said = "CUDA out of memory|not enough free memory"  # the second by retrieval metrics
    expected = fold_run(tmp_path / "whole", "cuda", max_epochs=2).run()
    for place in (1, 40, 300):
        memory.fail_in(place)
        with pytest.raises(torch.OutOfMemoryError, match=said):
            fold_run(tmp_path / "fold", "cuda", max_epochs=2).run()
    result = fold_run(tmp_path / "fold", "cuda", max_epochs=2).run()
    assert result.curve[-1]["loss"] == pytest.approx(expected.curve[-1]["loss"], rel=1e-3)
    assert result.epochs_spent == expected.epochs_spent


def test_samples_leave_a_gpu_that_is_full(
    tmp_path: Path, simulated_gpu: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the fold run continues from its checkpoint; without samples there it says so."""
    memory, data = simulated_gpu.memory[0], make_glyphs(16, 8, 32, 0)
    task = fold_run(tmp_path, "cuda", max_epochs=2).task
    job = FoldJob(task, 0, tuple(range(10)), tuple(range(10, 16)), tmp_path / "fold")
    place = (data, torch.device("cuda"), lambda position: None, Strategy())
    memory.fail_in(600)
    result = job.run(*place)
    assert "cuda is full, so its samples move to main memory" in capsys.readouterr().out
    store = PixelStore(data.samples, torch.device("cuda"))
    assert not store.resident
    expected = fold_run(tmp_path / "whole", "cuda", max_epochs=2).run()
    assert result.curve[-1]["loss"] == pytest.approx(expected.curve[-1]["loss"], rel=1e-3)
    memory.fail_in(600)
    with pytest.raises(torch.OutOfMemoryError):
        dataclasses.replace(job, folder=tmp_path / "again").run(*place)
