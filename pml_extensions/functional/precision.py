"""The precision losses and metrics are computed in, whatever the training loop runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` as float64 if it is float64 and as float32 otherwise (gradients cast back)."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which autocast leaves operations on the device of ``x`` alone."""
    return torch.autocast(x.device.type, enabled=False)


@contextmanager
def without_tf32(device: torch.device) -> Iterator[None]:
    """Keep TF32 out of float32 products on a GPU meanwhile, by whichever switch it was allowed."""
    if device.type != "cuda":
        yield
        return
    switches = torch.backends.cuda.matmul
    # From torch 2.9 on, reading the old switch raises where somebody has used the new one.
    name, off = (
        ("fp32_precision", "ieee") if hasattr(switches, "fp32_precision") else ("allow_tf32", False)
    )
    before = getattr(switches, name)
    setattr(switches, name, off)
    try:
        yield
    finally:
        setattr(switches, name, before)
