"""Operators that only CUDA has, computed with those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simulated_cuda._operators import Operator


def cpu_kernel(operator: Operator, func: Any) -> Callable[..., Any]:
    """What computes an operator with tensors of the CPU."""
    return _REPLACED.get(operator.name, _as_it_is)(func)


def _as_it_is(func: Any) -> Callable[..., Any]:
    return func


def _softmax(func: Any) -> Callable[..., Tensor]:
    """CUDA makes float32 of float16 in the same kernel."""

    def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        return func(x.float() if half_to_float else x, dim, False)

    return softmax


def _softmax_backward(func: Any) -> Callable[..., Tensor]:
    def backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
        return func(grad, output, dim, grad.dtype).to(dtype)

    return backward


_REPLACED: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
}
