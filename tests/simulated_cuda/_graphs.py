"""CUDA graphs: what may not be recorded is refused, and what was recorded is computed again.

As on a GPU, recording computes nothing: memory that was there keeps its values, and what the
recorded operations are to fill holds no number until the graph is replayed. Stricter than a GPU:
copies from page-locked memory are refused too, since a replay reads whatever lies there by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from simulated_cuda._streams import Stream
from simulated_cuda._tensor import CudaTensor, active, plainly

if TYPE_CHECKING:
    from simulated_cuda._device import Device

Run = Callable[[], Any]


class Recording:
    """What is being recorded."""

    def __init__(self) -> None:
        self.steps: list[tuple[Run, list[Tensor]]] = []
        self._changed: list[tuple[Tensor, Tensor]] = []
        self._made: list[Tensor] = []
        self._own: set[int] = set()

    def run(self, run: Run, arguments: Sequence[Tensor], writes: bool) -> Any:
        """Compute an operation, so that shapes are known, and note it."""
        with plainly():
            if writes:
                outside = (t for t in arguments if _memory(t) not in self._own)
                self._changed += [(t, t.clone()) for t in outside if t.layout == torch.strided]
            result = run()
            there = {_memory(tensor) for tensor in arguments}
            found = list(_tensors(result))
            new = [tensor for tensor in found if _memory(tensor) not in there]
        self._own.update(map(_memory, new))
        self._made += new
        self.steps.append((run, found))
        return result

    def end(self) -> None:
        """Nothing was computed."""
        with plainly():
            for tensor, before in reversed(self._changed):
                tensor.copy_(before)
            for tensor in self._made:
                if tensor.layout == torch.strided and tensor.is_floating_point():
                    tensor.fill_(float("nan"))


class CUDAGraph:
    """As ``torch.cuda.CUDAGraph``."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.recorded: Recording | None = None

    def replay(self) -> None:
        """Compute all of it again, in the same memory."""
        assert self.recorded is not None, "nothing was recorded"
        active().start("graph", active().current)
        for run, results in self.recorded.steps:
            with plainly():
                for result, value in zip(results, _tensors(run()), strict=True):
                    if value is not result:
                        result.copy_(value)


def of_graphs(device: Device) -> dict[str, Any]:
    """Functions and classes of ``torch.cuda``."""

    @contextmanager
    def graph(
        cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, **options: Any
    ) -> Iterator[None]:
        device.wait("synchronize")
        states = [generator.get_state() for generator in device.random.generators]
        device.recording = recording = Recording()
        try:
            yield
        except BaseException:
            device.random.broken = True
            raise
        else:
            device.random.broken = False
            cuda_graph.recorded = recording
        finally:
            device.recording = None
            recording.end()
            for generator, state in zip(device.random.generators, states, strict=True):
                generator.set_state(state)

    return {
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "Stream": Stream,
        "stream": device.streams.use,
        "current_stream": lambda gpu=None: device.streams.current(device.number(gpu)),
        "is_current_stream_capturing": lambda: device.recording is not None,
    }


def computed(device: Device, run: Run, arguments: Sequence[Tensor], writes: bool = False) -> Any:
    """What an operation returns; where a graph is recorded, it is noted."""
    return run() if device.recording is None else device.recording.run(run, arguments, writes)


def refuse_in_a_graph(device: Device, what: str, place: str) -> None:
    """Raise what CUDA answers to what cannot be recorded."""
    if device.recording is not None:
        raise getattr(torch, "AcceleratorError", RuntimeError)(
            f"CUDA error: operation not permitted when stream is capturing ({what}, {place})"
        )


def plain_tensors(arguments: Iterable[Any]) -> list[Tensor]:
    """Of GPU tensors among arguments, and in lists of them, what they share their memory with."""
    found: list[Tensor] = []
    for value in arguments:
        if isinstance(value, CudaTensor):
            found.append(value.on_cpu)
        elif isinstance(value, list | tuple):
            found += plain_tensors(value)
    return found


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)
