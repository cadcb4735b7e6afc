"""What makes steps on a GPU faster, and nothing else different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.gpu_folds import coloured, fold_run, vectors

from reality_check.config.training import GpuSettings

ALL_ON = {"cuda_graph": True, "channels_last": True, "compile": True}


def test_on_a_cpu_nothing_of_it_has_an_effect(tmp_path: Path) -> None:
    curves = []
    for name, gpu in {"on": ALL_ON, "off": {"cuda_graph": False}}.items():
        run = fold_run(tmp_path / name, "cpu", data=vectors(), augmentation={}, gpu=gpu)
        curves.append(run.run().curve)
        assert run.module.captured is None
    assert curves[0] == curves[1]


def test_checkpoints_of_other_settings_are_continued(tmp_path: Path) -> None:
    """As those of another device are: the numbers differ by rounding."""
    tasks = [fold_run(tmp_path, "cpu", gpu=gpu).task for gpu in ({}, ALL_ON)]
    assert tasks[0].fingerprint() == tasks[1].fingerprint()


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({}, "CUDA graph"),
        ({"cuda_graph": False}, "plain"),
        ({"cuda_graph": False, "channels_last": True}, "channels_last"),
        (ALL_ON, "CUDA graph, channels_last, torch.compile"),
    ],
)
def test_what_is_on_is_named(gpu: dict[str, Any], expected: str) -> None:
    assert GpuSettings(**gpu).described() == expected


@pytest.mark.parametrize("value", ["auto", True, False])
def test_what_a_probe_chose_once_is_read_over(value: Any) -> None:
    gone = {"probe": value is not False, "cudnn_benchmark": value, "fused_optimizers": value}
    assert GpuSettings(**gone) == GpuSettings()
    kept = GpuSettings(cuda_graph=value, channels_last=value)
    assert kept == GpuSettings(cuda_graph=value, channels_last=value is True)


@pytest.mark.gpu
@pytest.mark.parametrize("on", [True, False])
def test_images_have_the_layout_asked_for(on: bool, tmp_path: Path) -> None:
    gpu, seen = {"cuda_graph": False, "channels_last": on}, set[bool]()
    run = fold_run(tmp_path, "cuda", data=coloured(), augmentation={}, gpu=gpu)
    run.build()
    run.network.trunk.register_forward_pre_hook(
        lambda _, given: seen.add(given[0].is_contiguous(memory_format=torch.channels_last))
    )
    run.train_steps(1)
    assert seen == {on}


@pytest.mark.gpu
def test_a_compiled_network_is_the_one_that_steps_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[torch.nn.Module] = []
    monkeypatch.setattr(torch, "compile", lambda module: compiled.append(module) or module)
    run = fold_run(tmp_path, "cuda", gpu={"compile": True})
    run.build()
    assert compiled == [run.network]
    assert run.module.remarks() == ("no CUDA graph, since the network is compiled",)
