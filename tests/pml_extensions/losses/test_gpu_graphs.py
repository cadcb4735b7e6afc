"""Each loss as a CUDA graph: its step is recorded once, and is right for other batches too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pytorch_metric_learning import miners
from support.losses import GPU_LOSSES, OPTIONS
from torch import Tensor

from pml_extensions.losses import (
    ClassSampler,
    CrossBatchMemory,
    GradMLLoss,
    NormalizedSoftmaxLoss,
)

pytestmark = pytest.mark.gpu
CLASSES, SIZE, BATCH = 60, 16, 12
NORMALIZED = partial(NormalizedSoftmaxLoss, CLASSES, SIZE)
GRAPHS: dict[str, Callable[[], Any]] = {
    **{
        f"{name}, {option}": lambda make=make, extra=extra: make(CLASSES, SIZE, **extra())
        for name, make in GPU_LOSSES.items()
        for option, extra in OPTIONS.items()
    },
    "gradml, disjoint": GradMLLoss,
}
#: And why: what CUDA answers.
NO_GRAPHS: dict[str, tuple[Callable[[], Any], str]] = {
    "gradml, all quadruples": (lambda: GradMLLoss(quadruples="all"), "nonzero"),
    "few classes sampled": (
        lambda: NORMALIZED(class_sampler=ClassSampler(0.05)),
        "dense",
    ),
    "share of the negatives": (
        lambda: NORMALIZED(class_sampler=ClassSampler(0.5, "negatives")),
        "dense",
    ),
    "labels checked": (lambda: NORMALIZED(check_labels=True), "dense"),
    "memory": (lambda: CrossBatchMemory(GradMLLoss(), SIZE, memory_size=30), "nonzero"),
    "miner": (lambda: Mined(), "boolean|nonzero"),
}


class Mined(torch.nn.Module):
    """With pairs of PML's miner."""

    def __init__(self) -> None:
        super().__init__()
        self.loss, self.miner = GradMLLoss(), miners.MultiSimilarityMiner()

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = self.loss(x, labels, self.miner(x, labels))
        return value


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, SIZE, generator=generator)
    return x.cuda(), (torch.randint(CLASSES, (BATCH,), generator=generator) % 7).cuda()


class Step:
    """Value and gradients of a loss, and what it leaves in its buffers."""

    def __init__(self, make: Callable[[], Any]) -> None:
        torch.manual_seed(0)
        self.loss = make().cuda()
        self.x, self.labels = batch(0)
        self.x.requires_grad_()

    def compute(self) -> None:
        self.loss.zero_grad(set_to_none=True)
        self.x.grad = None
        self.value = self.loss(self.x, self.labels)
        self.value.backward()
        self.value = self.value.detach()

    def record(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.compute()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            self.compute()
        return graph

    def outcome(self) -> list[Tensor]:
        gradients = [self.x.grad, *(p.grad for p in self.loss.parameters())]
        return [t.detach().cpu() for t in (self.value, *gradients, *self.loss.buffers())]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_what_plain_steps_give(name: str) -> None:
    recorded, plain = Step(GRAPHS[name]), Step(GRAPHS[name])
    graph = recorded.record()
    plain.compute()
    for seed in (1, 2):
        x, labels = batch(seed)
        for step in (recorded, plain):
            step.x.detach().copy_(x)
            step.labels.copy_(labels)
        graph.replay()
        plain.compute()
        torch.testing.assert_close(recorded.outcome(), plain.outcome(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NO_GRAPHS)
def test_what_no_graph_can_hold_is_refused(name: str, simulated_gpu: Any) -> None:
    """Not on a real GPU, which some versions of torch leave in disorder."""
    make, why = NO_GRAPHS[name]
    with pytest.raises(RuntimeError, match=f"not permitted when stream is capturing.*({why})"):
        Step(make).record()
