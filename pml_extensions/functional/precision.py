"""The precision losses and metrics are computed in, whatever the training loop runs in."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return ``x`` as float64 if it is float64 and as float32 otherwise (gradients cast back)."""
    return x if x.dtype == torch.float64 else x.float()


def without_autocast(x: Tensor) -> torch.autocast:
    """Return a context in which autocast leaves operations on the device of ``x`` alone."""
    return torch.autocast(x.device.type, enabled=False)
