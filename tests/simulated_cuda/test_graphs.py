"""What the simulated GPU refuses while a graph is recorded, and how it repeats one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from simulated_cuda import Device

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _simulated(simulated_gpu: Device) -> None:
    """A recording that fails may leave a real GPU in disorder."""


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "copy to the host": lambda x: x.to("cpu", non_blocking=True),
    "copy into the host's memory": lambda x: torch.zeros(4).pin_memory().copy_(x, True),
    "upload": lambda x: torch.ones(4).cuda(),
    "pageable upload": lambda x: torch.ones(4).to("cuda", non_blocking=True),
    "page-locked upload": lambda x: torch.ones(4).pin_memory().to("cuda", non_blocking=True),
    "upload into": lambda x: x.copy_(torch.ones(4).pin_memory(), non_blocking=True),
    "a tensor of numbers": lambda x: torch.tensor([1.0], device="cuda"),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "boolean index": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "indices of the host": lambda x: x[torch.tensor([0, 1])],
    "synchronize": lambda x: torch.cuda.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_does_not_record_is_refused(name: str) -> None:
    x = torch.ones(4, device="cuda")
    with (
        pytest.raises(RuntimeError, match=r"not permitted when stream is capturing"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        REFUSED[name](x)
    assert not torch.cuda.is_current_stream_capturing()
    assert x.sum().item() == 4, "afterwards it is allowed"


def test_after_a_recording_that_failed_no_random_numbers_are_drawn() -> None:
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        _ = 1 / 0
    with pytest.raises(RuntimeError, match="Offset increment outside graph capture"):
        torch.rand(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
    torch.rand(1, device="cuda")


def test_recording_computes_nothing() -> None:
    x = torch.arange(4.0, device="cuda")
    state = torch.cuda.get_rng_state()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x[1:3].mul_(2)
        x.add_(1)
        y = x * 2 + torch.rand_like(x)
    assert x.tolist() == [0, 1, 2, 3]
    assert y.isnan().all()
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_graph_reads_and_writes_the_memory_that_it_was_recorded_with() -> None:
    x, total = torch.ones(4, device="cuda"), torch.zeros((), device="cuda")
    kept, number = x, 3.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.add_((x * number).sum())
        y = x.view(2, 2) + total
    number, x = 5.0, torch.full((4,), 100.0, device="cuda")
    for replay in (1, 2):
        graph.replay()
        assert total.item() == 12 * replay, "of the number and the tensor that were there then"
        assert y.tolist() == [[1 + 12.0 * replay] * 2] * 2
    kept.copy_(x)
    graph.replay()
    assert total.item() == 24 + 1200


def test_random_numbers_are_new_in_every_replay() -> None:
    torch.cuda.manual_seed(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(3, device="cuda")
    found = []
    for _ in range(2):
        graph.replay()
        found.append(drawn.tolist())
    torch.cuda.manual_seed(1)
    assert found == [torch.rand(3, device="cuda").tolist() for _ in range(2)]


def test_gradients_lie_where_they_lay() -> None:
    layer, x = nn.Linear(3, 2).cuda(), torch.ones(4, 3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(x).square().sum().backward()
    gradient: Any = layer.weight.grad
    for scale in (1.0, 2.0):
        x.fill_(scale)
        graph.replay()
        expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
        torch.testing.assert_close(gradient, expected)


def _aside(side: Any, before: bool = True, after: bool = True) -> float:
    x, current = torch.ones(4, device="cuda"), torch.cuda.current_stream()
    if before:
        side.wait_stream(current)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        y = x + 1
    assert torch.cuda.current_stream() is current
    if after:
        current.wait_stream(side)
    return (x + y).sum().item()


def test_streams_wait_for_each_other() -> None:
    side = torch.cuda.Stream()
    for _ in range(2):
        assert _aside(side) == 12
    with pytest.raises(RuntimeError, match=r"does not wait for another one \(add, .*test_graphs"):
        _aside(side, before=False)
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match=r"does not wait for another one \(add, .*test_graphs"):
        _aside(side, after=False)
