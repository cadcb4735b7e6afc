"""Products of vectors on a CPU, by whichever of torch's libraries is fast there."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor


def dot_products(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ``x @ y.t()``, shape (N, M).

    Args:
        x: Shape (N, D).
        y: Shape (M, D).
        out: What receives it, shape (N, M).
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not onednn_is_faster():
        return torch.mm(x, y.t(), out=out)
    # What compiled models call; public functions reach oneDNN in float32 by copies alone.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, y, None, "none", [], "")
    return product if out is None else out.copy_(product)


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN multiplies about twice as fast here as MKL, which ``torch.mm`` calls.

    So it does on processors of AMD, where MKL does not take its fastest kernels.
    """
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return "AuthenticAMD" in _processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _processor() -> str:
    """Return a text that names the maker of the processor, where the system tells it."""
    on_linux = Path("/proc/cpuinfo")
    return on_linux.read_text(encoding="utf-8") if on_linux.exists() else platform.processor()
