"""A whole experiment on a GPU: in which precision it computes, and what is recorded of the GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.spied import TRAINING, Made

from reality_check.models.network import Network
from reality_check.report.collect import collect
from reality_check.training import gpu_speed
from reality_check.training.module import TrainingModule
from reality_check.training.trainer import Trainer

pytestmark = pytest.mark.gpu


def switches() -> tuple[str, ...]:
    """Those of products and of convolutions."""
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
@pytest.mark.parametrize(("tf32", "expected"), [(False, "ieee"), (True, "tf32")])
def test_every_network_computes_in_the_precision_that_is_asked_for(
    make: Made, tf32: bool, expected: str
) -> None:
    seen, before = [], switches()

    def look(module: torch.nn.Module, given: Any) -> None:
        if isinstance(module, Network) and next(module.parameters()).is_cuda:
            seen.append(switches())

    protocol = {
        "base": "quick_one_search",
        "training": {**TRAINING, "tf32": tf32, "gpu": {"probe": False}},
        "search": {"trials": 1, "sampler": "random"},
        "reproductions": 1,
    }
    methods = [{"base": "contrastive", "samples_per_class": 2}]
    campaign = make(device="cuda", protocol=protocol, methods=methods)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        campaign.work()
    finally:
        hook.remove()
    assert len(seen) > 20
    assert set(seen) == {(expected, expected)}
    assert switches() == before

    facts = dict(collect(campaign).facts)
    assert facts["GPU settings"] == "contrastive: plain"
    words = facts["GPU"].split(", ")
    assert words[0] == torch.cuda.get_device_name()
    assert [word.split()[0] for word in words[1:4]] == ["driver", "CUDA", "cuDNN"]
    assert words[4:] == [f"TF32 {'on' if tf32 else 'off'}"]


def test_all_workers_take_what_the_first_one_chose(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the report names it, with what did not come to pass."""
    tried: list[str] = []

    def seconds(module: TrainingModule, batches: object) -> float:
        tried.append(module._gpu.described())
        return 0.002 if "channels_last" in tried[-1] else 0.004

    monkeypatch.setattr(gpu_speed, "seconds_of_a_step", seconds)
    seen: set[tuple[str, bool]] = set()
    train_steps = Trainer.train_steps

    def watched(trainer: Trainer, count: int) -> float:
        strides = {p.stride()[1] for p in trainer.network.parameters() if p.dim() == 4}
        seen.add((trainer.module._gpu.described(), strides == {1}))
        return train_steps(trainer, count)

    monkeypatch.setattr(Trainer, "train_steps", watched)
    protocol = {
        "base": "quick_one_search",
        "training": {**TRAINING, "iterations_per_epoch": 3, "gpu": {"cuda_graph": True}},
        "search": {"trials": 2, "sampler": "random"},
        "reproductions": 1,
    }
    methods = [{"base": "contrastive", "samples_per_class": 2}]
    campaign = make(device="cuda", protocol=protocol, methods=methods)
    campaign.work()
    assert len(tried) == 5, tried
    assert seen == {("channels_last, CUDA graph", True)}
    (words,) = [dict(collect(campaign).facts)["GPU settings"]]
    assert words.startswith("contrastive: channels_last, CUDA graph (ms a step: CUDA graph 4, ")
    assert words.endswith("; no CUDA graph, since the step waits for the GPU")
    kept = json.loads((campaign.out_dir / "contrastive" / "gpu_speed.json").read_text())
    assert kept["settings"] == {
        "channels_last": True,
        "cudnn_benchmark": False,
        "fused_optimizers": False,
    }
