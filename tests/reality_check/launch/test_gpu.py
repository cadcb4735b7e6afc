"""A whole experiment on a GPU: in which precision it computes, and what is recorded of the GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.spied import TRAINING, Made

from reality_check.models.network import Network
from reality_check.report.collect import collect
from reality_check.report.columns import column_cells
from reality_check.report.summary import Summary

pytestmark = pytest.mark.gpu


def switches() -> tuple[str, ...]:
    """Those of products and of convolutions."""
    cudnn: Any = torch.backends.cudnn
    return torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision


has_switches = pytest.mark.skipif(
    not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9"
)


def worked(make: Made, expected: str, training: dict[str, Any]) -> Any:
    """An experiment, in which each network computed in that precision."""
    seen, before = [], switches()

    def look(module: torch.nn.Module, given: Any) -> None:
        if isinstance(module, Network) and next(module.parameters()).is_cuda:
            seen.append(switches())

    protocol = {
        "base": "quick_one_search",
        "training": {**TRAINING, "iterations_per_epoch": 3, **training},
        "split": {"folds": 2},
        "search": {"trials": 1, "sampler": "random"},
        "reproductions": 1,
    }
    methods = [{"base": "contrastive", "samples_per_class": 2}]
    recorded = make(device="cuda", protocol=protocol, methods=methods)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        recorded.work()
    finally:
        hook.remove()
    assert len(seen) > 20
    assert set(seen) == {(expected, expected)}
    assert switches() == before
    return recorded


@has_switches
def test_every_network_computes_in_the_precision_that_is_asked_for(make: Made) -> None:
    recorded = worked(make, "tf32", {"tf32": True, "gpu": {"cuda_graph": False}})
    facts = dict(collect(recorded).facts)
    assert facts["Trained with"] == "plain"
    words = facts["GPU"].split(", ")
    assert words[0] == torch.cuda.get_device_name()
    assert [word.split()[0] for word in words[1:4]] == ["driver", "CUDA", "cuDNN"]
    assert words[4:] == ["TF32 on"]


@has_switches
def test_the_report_names_the_settings_and_what_did_not_come_to_pass(make: Made) -> None:
    results = collect(worked(make, "ieee", {"gpu": {"channels_last": True}}))
    facts = dict(results.facts)
    assert facts["GPU"].endswith(", TF32 off")
    assert facts["Trained with"] == (
        "CUDA graph, channels_last; no CUDA graph, since the step waits for the GPU"
    )
    (method,) = results.methods
    used = [trial.gpu_memory for trial in (*method.search, *method.reproductions)]
    assert all(used)
    cell = column_cells(Summary(results), method.name, "aggregate")[1]
    assert cell.endswith(f"s, {max(used) / 1e9:.2g} GB")
