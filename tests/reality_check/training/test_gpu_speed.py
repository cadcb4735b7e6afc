"""What makes steps on a GPU faster: chosen once, by time, and without a trace elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_cuda import Device
from support.gpu_folds import fold_run, vectors

from reality_check.config.training import LEVERS, GpuSettings
from reality_check.training import gpu_speed
from reality_check.training.captured_step import CapturedStep
from reality_check.training.fold import FoldTask
from reality_check.training.gpu_speed import Choice, chosen, seconds_of_a_step
from reality_check.training.module import TrainingModule
from reality_check.utils import checkpoints
from reality_check.utils.locks import locked

ALL_ON = {"probe": False, **dict.fromkeys([*LEVERS, "compile"], True)}
GPU = torch.device("cuda")
Seconds = Callable[[dict[str, float]], list[str]]


# -- on a CPU -------------------------------------------------------------------------------------


def test_on_a_cpu_nothing_of_it_has_an_effect(tmp_path: Path) -> None:
    curves = []
    for name, gpu in {"on": ALL_ON, "off": {"probe": False}}.items():
        run = fold_run(tmp_path / name, "cpu", data=vectors(), augmentation={}, gpu=gpu)
        curves.append(run.run().curve)
        assert run.module.captured is None
        assert run.module.optimizers["embedder"].defaults["fused"] is None
    assert curves[0] == curves[1]


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_elsewhere_all_is_off(kind: str, tmp_path: Path) -> None:
    training = fold_run(tmp_path, "cpu", autocast="bf16", gpu=ALL_ON).task.training
    settings = training.on_device(kind)
    assert not any(dict(settings).values())
    assert settings.described() == "plain"


def test_without_a_probe_half_precision_alone_has_another_layout(tmp_path: Path) -> None:
    for autocast, gpu, expected in (
        ("none", {}, "plain"),
        ("bf16", {"probe": False}, "channels_last"),
        ("bf16", {"channels_last": False, "compile": True}, "torch.compile"),
    ):
        training = fold_run(tmp_path, "cpu", autocast=autocast, gpu=gpu).task.training
        assert training.on_device("cuda").described() == expected


def test_what_is_left_to_a_probe() -> None:
    assert GpuSettings().left_open == LEVERS
    given = GpuSettings(cuda_graph=False, channels_last=True)
    assert given.left_open == ("cudnn_benchmark", "fused_optimizers")
    assert GpuSettings(probe=False).left_open == ()
    choice = Choice("H100", dict.fromkeys(LEVERS, True))
    expected = GpuSettings(probe=False, **{**dict.fromkeys(LEVERS, True), "cuda_graph": False})
    assert choice.complete(given) == expected, "what is given holds"


def test_checkpoints_of_other_settings_are_continued(tmp_path: Path) -> None:
    """As those of another device are: the numbers differ by rounding."""
    tasks = [fold_run(tmp_path, "cpu", gpu=gpu).task for gpu in ({}, ALL_ON)]
    assert tasks[0].fingerprint() == tasks[1].fingerprint()


# -- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_optimisers_are_fused_and_stay_so_with_a_state_of_others(tmp_path: Path) -> None:
    def module(device: str, fused: bool) -> TrainingModule:
        gpu = {"probe": False, "fused_optimizers": fused}
        run = fold_run(tmp_path, device, data=vectors(), augmentation={}, gpu=gpu)
        run.build()
        run.train_steps(2)
        return run.module

    def taken(optimizer: torch.optim.Optimizer) -> float:
        (steps,) = {float(state["step"]) for state in optimizer.state.values()}
        return steps

    fused, others = module("cuda", True), [module("cuda", False), module("cpu", True)]
    assert [fused.optimizers[part].defaults["fused"] for part in ("embedder", "loss")] == [
        True,
        None,
    ]
    for other in others:
        for to, source, expected in ((fused, other, True), (other, fused, None)):
            to.load_state_dict(checkpoints.clone(source.state_dict()))
            optimizer = to.optimizers["embedder"]
            assert [group["fused"] for group in optimizer.param_groups] == [expected]
            before = taken(source.optimizers["embedder"])
            to.step(torch.randn(16, 12, device=to.device), torch.arange(16, device=to.device) % 8)
            assert taken(optimizer) == before + 1
        torch.testing.assert_close(
            [p.detach().cpu() for p in fused.network.parameters()],
            [p.detach().cpu() for p in other.network.parameters()],
            rtol=0.05,
            atol=0.05,
        )


@pytest.mark.gpu
def test_an_argument_of_the_yaml_is_not_overruled(tmp_path: Path) -> None:
    part = {"name": "Adam", "lr": 0.0, "arguments": {"foreach": False}}
    run = fold_run(
        tmp_path,
        "cuda",
        optimizers={"trunk": part, "embedder": {"name": "Adagrad", "lr": 0.0}, "loss": part},
        gpu={"probe": False, "fused_optimizers": True},
    )
    run.build()
    trunk, embedder = (run.module.optimizers[name].defaults for name in ("trunk", "embedder"))
    assert (trunk["fused"], trunk["foreach"]) == (None, False)
    assert embedder["fused"] is None, "on a GPU it has no such form"


@pytest.mark.gpu
@pytest.mark.parametrize("on", [True, False])
def test_algorithms_are_tried_in_steps_alone(
    on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = {"probe": False, "cudnn_benchmark": on, "channels_last": on}
    run = fold_run(tmp_path, "cuda", max_epochs=1, iterations_per_epoch=2, gpu=gpu)
    run.build()
    seen: set[tuple[bool, bool, bool]] = set()

    def look(module: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        last = given[0].is_contiguous(memory_format=torch.channels_last)
        seen.add((module.training, torch.backends.cudnn.benchmark, last))

    run.network.trunk.register_forward_pre_hook(look)
    run.train_steps(2)
    assert not torch.backends.cudnn.benchmark
    monkeypatch.setattr(run, "build", lambda: None)
    run.run()
    # Glyphs have one channel, which lies both ways.
    assert {(training, tries) for training, tries, _ in seen} == {(True, on), (False, False)}


@pytest.mark.gpu
def test_a_compiled_network_is_the_one_that_steps_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(torch, "compile", lambda module: compiled.append(module) or module)
    run = fold_run(tmp_path, "cuda", gpu={"probe": False, "compile": True})
    run.build()
    assert compiled == [run.network]


# -- the probe ------------------------------------------------------------------------------------


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    """Have steps take as long as is given, by what is on, or else 4 ms; return what was asked."""

    def install(times: dict[str, float]) -> list[str]:
        asked: list[str] = []

        def found(module: TrainingModule, batches: object) -> float:
            asked.append(module._gpu.described())
            time = times.get(asked[-1], 4e-3)
            if time < 0:
                raise RuntimeError("of the driver")
            return time

        monkeypatch.setattr(gpu_speed, "seconds_of_a_step", found)
        monkeypatch.setattr(CapturedStep, "is_decided", True)  # without its steps
        return asked

    return install


def task_of(folder: Path, **gpu: Any) -> FoldTask:
    run = fold_run(folder, "cuda", data=vectors(), augmentation={}, gpu=gpu)
    return run.task


ORDER = [
    "plain",
    "cudnn.benchmark",
    "channels_last",
    "channels_last, cudnn.benchmark",
]


@pytest.mark.gpu
def test_the_fastest_is_chosen_and_kept(tmp_path: Path, seconds: Seconds) -> None:
    best = "channels_last, cudnn.benchmark"
    asked = seconds(
        {
            "cudnn.benchmark": 3e-3,
            best: 2e-3,
            f"{best}, fused optimizers": 1.99e-3,  # within the noise
            f"{best}, CUDA graph": 1e-3,
        }
    )
    file, samples = tmp_path / "m" / "gpu_speed.json", vectors().subset(range(10))
    choice = chosen(file, task_of(tmp_path), samples, GPU)
    assert asked == [*ORDER, f"{best}, fused optimizers", f"{best}, CUDA graph"]
    assert choice.settings == {
        "channels_last": True,
        "cudnn_benchmark": True,
        "fused_optimizers": False,
        "cuda_graph": True,
    }
    assert choice.milliseconds["plain"] == 4
    assert choice.remarks == ()
    seconds({"plain": 1e-9})
    assert chosen(file, task_of(tmp_path), samples, GPU) == choice, "another worker"
    narrower = task_of(tmp_path, cuda_graph=False)
    assert chosen(file, narrower, samples, GPU) == choice
    complete = choice.complete(narrower.training.gpu)
    assert complete.described() == best
    assert "4" in choice.described()
    assert sorted(p.name for p in file.parent.iterdir()) == ["gpu_speed.json"]


@pytest.mark.gpu
def test_a_worker_waits_for_one_that_tries(tmp_path: Path, seconds: Seconds) -> None:
    asked, holders = seconds({}), queue.Queue[str]()
    file, task, samples = tmp_path / "a.json", task_of(tmp_path), vectors().subset(range(10))
    with ThreadPoolExecutor(1) as worker:
        with locked(file.with_suffix(".lock"), holders.put):
            found = worker.submit(chosen, file, task, samples, GPU, holders.put)
            assert holders.get(timeout=30).startswith(f"process {os.getpid()} of the machine ")
            choice = Choice("H100", dict.fromkeys(LEVERS, True), {"plain": 1.0}, ("a", "b"))
            file.write_text(json.dumps(dataclasses.asdict(choice)))
        assert found.result(timeout=30) == choice
    assert asked == []


@pytest.mark.gpu
def test_only_what_is_left_open_is_tried(tmp_path: Path, seconds: Seconds) -> None:
    asked = seconds({"cudnn.benchmark": 1e-3})
    given = {"channels_last": False, "cuda_graph": False, "fused_optimizers": False}
    task, samples = task_of(tmp_path, **given), vectors().subset(range(10))
    choice = chosen(tmp_path / "a.json", task, samples, GPU)
    assert asked == ["plain", "cudnn.benchmark"]
    assert choice.settings == {"cudnn_benchmark": True}
    more = task_of(tmp_path)
    assert set(chosen(tmp_path / "a.json", more, samples, GPU).settings) == set(LEVERS)


@pytest.mark.gpu
def test_what_fails_is_told_and_left_out(tmp_path: Path, seconds: Seconds) -> None:
    seconds({"channels_last": -1.0, "CUDA graph": 1e-3})
    task = task_of(tmp_path)
    waits = dataclasses.replace(task.settings, loss="support.graph_losses.Waits")
    samples = vectors().subset(range(10))
    choice = chosen(tmp_path / "a.json", dataclasses.replace(task, settings=waits), samples, GPU)
    assert choice.remarks[0] == "channels_last cannot be used: of the driver"
    assert choice.settings["channels_last"] is False


@pytest.mark.gpu
def test_what_changes_more_than_rounding_is_not_chosen(
    tmp_path: Path, seconds: Seconds, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = seconds({"fused optimizers": 1e-3, "channels_last": 3e-3})
    step = torch.optim.Adam.step

    def wrong(optimizer: torch.optim.Adam, closure: Any = None) -> Any:
        if optimizer.defaults["fused"]:
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad.neg_()
        return step(optimizer, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", wrong)
    task, samples = task_of(tmp_path, cuda_graph=False), vectors().subset(range(10))
    rates = dict.fromkeys(("trunk", "embedder", "loss"), 0.1)
    settings = dataclasses.replace(task.settings, learning_rates=rates)
    task = dataclasses.replace(task, settings=settings)
    choice = chosen(tmp_path / "a.json", task, samples, GPU)
    assert "fused optimizers" not in ", ".join(asked)
    (remark,) = choice.remarks
    assert remark.startswith(
        "channels_last, fused optimizers changes more than rounding: the first"
    )
    assert choice.settings["channels_last"] is True
    assert choice.settings["fused_optimizers"] is False


@pytest.mark.gpu
def test_a_process_that_a_graph_ends_is_the_last_one(tmp_path: Path, seconds: Seconds) -> None:
    class Ended(BaseException):
        pass

    asked = seconds({"cudnn.benchmark": 1e-3})
    steps, file = gpu_speed.seconds_of_a_step, tmp_path / "a.json"

    def ends(module: TrainingModule, batches: Any) -> float:
        if module.captured is not None:
            raise Ended
        return steps(module, batches)

    task, samples = task_of(tmp_path), vectors().subset(range(10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_speed, "seconds_of_a_step", ends)
        with pytest.raises(Ended):
            chosen(file, task, samples, GPU)
    before = len(asked)
    choice = chosen(file, task, samples, GPU)
    assert len(asked) == before
    assert choice.settings["cudnn_benchmark"] is True
    assert choice.settings["cuda_graph"] is False
    assert choice.remarks == ("no CUDA graph, since the process ended in which one was tried",)


@pytest.mark.gpu
def test_a_graph_that_was_given_up_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real steps, by a clock on which those by a graph would be the fastest."""
    ticks = itertools.count()
    monkeypatch.setattr(gpu_speed.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(gpu_speed, "_ENOUGH", 1e9)
    only = {"channels_last": False, "cudnn_benchmark": False, "fused_optimizers": False}
    samples, found = vectors().subset(range(10)), {}
    for loss in ("Waits", "Plain"):
        task = task_of(tmp_path, **only)
        settings = dataclasses.replace(task.settings, loss=f"support.graph_losses.{loss}")
        task = dataclasses.replace(task, settings=settings)
        found[loss] = list(gpu_speed.probe(task, samples, GPU))[-1]
    assert found["Waits"].remarks == ("no CUDA graph, since the step waits for the GPU",)
    assert list(found["Waits"].milliseconds) == ["plain"]
    assert found["Plain"].remarks == ()
    assert list(found["Plain"].milliseconds) == ["plain", "CUDA graph"]


@pytest.mark.gpu
def test_too_slow_a_probe_ends(tmp_path: Path, seconds: Seconds, monkeypatch: Any) -> None:
    asked = seconds({})
    monkeypatch.setattr(gpu_speed, "_ENOUGH", -1.0)
    (choice, *_) = gpu_speed.probe(task_of(tmp_path), vectors().subset(range(10)), GPU)
    assert asked == []
    assert "plain was not tried: -1 s had passed" in choice.remarks


@pytest.mark.gpu
def test_a_training_is_the_same_with_a_probe_before_it(
    tmp_path: Path, simulated_gpu: Device
) -> None:
    """Bit by bit, which two trainings on a real GPU are not."""
    curves = []
    for name in ("with", "without"):
        run = fold_run(tmp_path / name, "cuda", max_epochs=1, iterations_per_epoch=3)
        if name == "with":
            seen = TrainingModule(run.task, 10, (32, 32, 1), GPU)
            seen.train()
            batch = torch.randn(16, 1, 32, 32, device=GPU), torch.arange(16, device=GPU) % 8
            assert seconds_of_a_step(seen, [batch]) > 0
        curves.append(run.run().curve)
    assert curves[0] == curves[1]
