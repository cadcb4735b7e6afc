"""Random numbers of GPUs: streams of their own, seeded with the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FIRST_SEED = 67280421310721  # of a GPU that nobody has seeded


class Generators:
    """The default generators of all GPUs.

    Attributes:
        broken: whether a recording failed since the last one that did not, after which some
            versions of torch draw no random numbers.
    """

    broken = False

    def __init__(self, gpus: int) -> None:
        self.generators = [torch.Generator().manual_seed(_FIRST_SEED) for _ in range(gpus)]

    def seed_all(self, seed: int) -> None:
        """As ``torch.cuda.manual_seed_all``."""
        for generator in self.generators:
            generator.manual_seed(int(seed))

    def state(self, number: int) -> Tensor:
        """As ``torch.cuda.get_rng_state``."""
        return self.generators[number].get_state()

    def set_state(self, state: Tensor, number: int) -> None:
        """As ``torch.cuda.set_rng_state``."""
        if state.is_cuda:
            raise TypeError("RNG state must be a torch.ByteTensor")
        self.generators[number].set_state(state)

    def draw(self, number: int, compute: Callable[[], Any]) -> Any:
        """Compute on the CPU with the random numbers of a GPU."""
        if self.broken:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        of_cpu, own = torch.default_generator, self.generators[number]
        before = of_cpu.get_state()
        of_cpu.set_state(own.get_state())
        try:
            return compute()
        finally:
            own.set_state(of_cpu.get_state())
            of_cpu.set_state(before)
