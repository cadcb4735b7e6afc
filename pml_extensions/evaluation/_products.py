"""Matrix products of vectors, with the library that is fastest on this CPU."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor


def dot_products(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x @ y.t()``, shape (N, M).

    Args:
        x: Shape (N, D).
        y: Shape (M, D).
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not onednn_is_faster():
        return x @ y.t()
    # The operator that torch.compile uses, without bias and without a function of the product.
    # Public functions that call oneDNN copy float32 tensors.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, y, None, "none", [], "")
    return product


def rounded_products(vectors: Tensor, rows: slice) -> Tensor:
    """Return the products of ``rows`` with themselves and all later vectors, shape (N, M).

    Unlike those of :func:`dot_products`, the products of equal vectors may differ by rounding. On
    AMD processors, NumPy's OpenBLAS is faster than oneDNN, and computes only half of the products
    of the rows with each other.

    Args:
        vectors: Shape (N, D), on a CPU.
        rows: Consecutive rows.
    """
    if not onednn_is_faster():
        return dot_products(vectors[rows], vectors[rows.start :])
    x, later = vectors[rows].numpy(), vectors[rows.stop :].numpy()
    products = np.empty((len(x), len(x) + len(later)), x.dtype)
    with _thread_pools().limit(limits=torch.get_num_threads(), user_api="blas"):
        np.matmul(x, x.T, out=products[:, : len(x)])
        np.matmul(x, later.T, out=products[:, len(x) :])
    return torch.from_numpy(products)


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the libraries that have threads, which takes milliseconds."""
    return ThreadpoolController()


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN is faster than MKL, which ``torch.mm`` calls.

    It is about twice as fast on AMD processors, where MKL does not use its fastest kernels.
    """
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    return "AuthenticAMD" in _processor() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _processor() -> str:
    """Return a description of the processor that contains its vendor, if the system has one."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else platform.processor()
