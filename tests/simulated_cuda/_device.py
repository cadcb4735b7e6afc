"""What the simulated driver knows: GPUs, waits, operations, memory, errors."""

from __future__ import annotations

import collections
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from simulated_cuda._graphs import Recording, refuse_in_a_graph
from simulated_cuda._memory import Memory
from simulated_cuda._pinned import PageLocked
from simulated_cuda._random import Generators
from simulated_cuda._streams import Streams

#: Packages whose lines are named as the place of a wait, the ones searched for first.
_OURS = ("pml_extensions", "reality_check")
_THEIRS = ("pytorch_metric_learning", "tests")
_ASSERTED = "CUDA error: device-side assert triggered"


class Device:
    """The GPUs of a simulation.

    Args:
        gpus: how many.
        memory: bytes of each.

    Attributes:
        waits: how often the host waited for a GPU, by (what it did, where).
        operations: how often an operation was started on a GPU, by its name.
        uploads: copies from the host that did not make it wait, by (kind, where); the kind is
            ``"pinned"`` or ``"pageable"`` (which in truth hides a wait of the driver).
        doubles: operations that take or give float64, for which most GPUs have few units, by (name,
            where); single numbers do not count.
        tf32: products and convolutions of float32 that TF32 was allowed for, by (name, where); all
            the same their values are those of float32.
        current: number of the current GPU.
        recording: the graph that is being recorded, if one is.
    """

    def __init__(self, gpus: int, memory: int) -> None:
        self._gpus = gpus
        self.current = 0
        self.recording: Recording | None = None
        self.memory = [Memory(memory) for _ in range(gpus)]
        self.random = Generators(gpus)
        self.streams = Streams(gpus)
        self.page_locked = PageLocked()
        self.waits: collections.Counter[tuple[str, str]] = collections.Counter()
        self.operations: collections.Counter[str] = collections.Counter()
        self.uploads: collections.Counter[tuple[str, str]] = collections.Counter()
        self.doubles: collections.Counter[tuple[str, str]] = collections.Counter()
        self.tf32: collections.Counter[tuple[str, str]] = collections.Counter()
        self._debug_mode = "default"
        self._broken = ""

    @property
    def gpus(self) -> int:
        """How many of them this process may see."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return self._gpus
        return min(self._gpus, sum(bool(name.strip()) for name in visible.split(",")))

    def reset(self) -> None:
        """Forget what has happened; the GPUs' memory and random numbers stay as they are."""
        for counts in (self.waits, self.operations, self.uploads, self.doubles, self.tf32):
            counts.clear()
        self._debug_mode, self._broken = "default", ""
        self.recording, self.random.broken = None, False
        self.page_locked.forget()
        for memory in self.memory:
            memory.reset()

    def start(self, name: str, gpu: int) -> None:
        """Note an operation of a GPU.

        Raises:
            RuntimeError: another stream of the GPU was told something that this one's does not wait
                for. A real GPU may then read what is not there yet.
        """
        self.operations[name] += 1
        if self.recording is None and not self.streams.start(gpu):
            raise RuntimeError(f"a stream does not wait for another one ({name}, {where()})")

    def wait(self, what: str) -> None:
        """The host waits until the GPU has done all that it was told."""
        self.raise_if_broken()
        place = where()
        refuse_in_a_graph(self, what, place)
        self.waits[what, place] += 1
        self.page_locked.arrive()
        self.streams.arrive(None if what == "synchronize" else self.streams.in_use())
        if self._debug_mode == "error":
            raise RuntimeError(f"called a synchronizing CUDA operation ({what}, {place})")
        if self._debug_mode == "warn":
            text = f"called a synchronizing CUDA operation ({what}, {place})"
            warnings.warn(text, UserWarning, stacklevel=2)

    def note_doubles(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        """Note whether an operation takes or gives float64."""
        if any(tensor.dtype == torch.float64 and tensor.dim() for tensor in tensors):
            self.doubles[name, where()] += 1

    def note_tf32(self, name: str, is_product: bool, tensors: Iterable[torch.Tensor]) -> None:
        """Note whether an operation on float32 may be done with fewer bits."""
        owner: Any = torch.backends.cuda.matmul if is_product else torch.backends.cudnn
        owner = owner if is_product else getattr(owner, "conv", owner)
        if hasattr(owner, "fp32_precision"):
            allowed = owner.fp32_precision == "tf32"
        else:
            allowed = owner.allow_tf32
        if allowed and all(tensor.dtype == torch.float32 for tensor in tensors):
            self.tf32[name, where()] += 1

    def upload(self, kind: str) -> None:
        """Note a copy to the GPU that the host does not wait for."""
        refuse_in_a_graph(self, f"{kind} upload", where())
        self.uploads[kind, where()] += 1

    def set_debug_mode(self, mode: int | str) -> None:
        """As ``torch.cuda.set_sync_debug_mode``."""
        modes = ("default", "warn", "error")
        self._debug_mode = modes[mode] if isinstance(mode, int) else mode

    def debug_mode(self) -> int:
        """As ``torch.cuda.get_sync_debug_mode``."""
        return ("default", "warn", "error").index(self._debug_mode)

    def break_down(self, cause: str) -> None:
        """After a failed assertion a GPU answers nothing but this until the process ends."""
        self._broken = f"{_ASSERTED} ({cause})"

    def raise_if_broken(self) -> None:
        """Raise what a real GPU answers after a failed assertion."""
        if self._broken:
            raise getattr(torch, "AcceleratorError", RuntimeError)(self._broken)

    def numbered(self, device: Any) -> torch.device:
        """A device with its number, which torch would ask the driver for."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if device.type != "cuda":
            return device
        number = self.current if device.index is None else device.index
        if not 0 <= number < self.gpus:
            raise RuntimeError(f"CUDA error: invalid device ordinal ({number} of {self.gpus})")
        return torch.device("cuda", number)

    def number(self, device: Any = None) -> int:
        """The number of a device however it is named; None: the current one."""
        return self.current if device is None else self.numbered(device).index


def where() -> str:
    """The line of ours, or else of PML or a test, that the program is at."""
    frame = sys._getframe(1)
    second_best = "elsewhere"
    while frame is not None:
        name = frame.f_code.co_filename
        for part in (*_OURS, *_THEIRS):
            start = name.rfind(f"/{part}/")
            if start < 0 or "/simulated_cuda/_" in name:
                continue
            place = f"{name[start + 1 :]}:{frame.f_lineno}"
            if part in _OURS and "/tests/" not in name:
                return place
            second_best = place if second_best == "elsewhere" else second_best
        frame = frame.f_back  # type: ignore[assignment]
    return second_best
