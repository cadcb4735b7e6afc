"""Streams of a GPU: an operation may not start before what another stream was told is waited for.

Stricter than a GPU, which lets two streams compute at once what has nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from simulated_cuda._tensor import active


class Stream:
    """As ``torch.cuda.Stream``.

    Attributes:
        gpu: number of the GPU.
        told: when it was told to compute something for the last time, as ``Streams`` counts.
        knows: what other streams were told until then is done before what this one is told next.
    """

    def __init__(self, device: Any = None) -> None:
        self.gpu = device if isinstance(device, int) else active().number(device)
        self.told = self.knows = 0

    def wait_stream(self, other: Stream) -> None:
        """What it is told from now on comes after what the other was told."""
        self.knows = max(self.knows, other.told, other.knows)

    def synchronize(self) -> None:
        """The host waits."""
        active().wait("a stream")
        active().streams.arrive([self])


class Streams:
    """Which stream each GPU is told by, and in which order."""

    def __init__(self, gpus: int) -> None:
        self._current = [Stream(gpu) for gpu in range(gpus)]
        self._last = list(self._current)
        self._count = self._host_knows = 0

    def current(self, gpu: int) -> Stream:
        """The stream that operations of a GPU go to."""
        return self._current[gpu]

    @contextmanager
    def use(self, stream: Stream) -> Iterator[None]:
        """Send operations to a stream."""
        before = self._current[stream.gpu]
        self._current[stream.gpu] = stream
        try:
            yield
        finally:
            self._current[stream.gpu] = before

    def start(self, gpu: int) -> bool:
        """Note an operation; false where its stream did not wait for the one that was told last."""
        stream, last = self._current[gpu], self._last[gpu]
        in_order = stream is last or max(stream.knows, self._host_knows) >= last.told
        self._count += 1
        stream.told, self._last[gpu] = self._count, stream
        return in_order

    def arrive(self, streams: Sequence[Stream] | None = None) -> None:
        """The host has waited for streams; if none are named, for all."""
        told = [self._count] if streams is None else [stream.told for stream in streams]
        self._host_knows = max(self._host_knows, *told)

    def in_use(self) -> list[Stream]:
        """The stream of each GPU."""
        return self._current
