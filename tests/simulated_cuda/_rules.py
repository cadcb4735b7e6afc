"""What CUDA refuses, and what makes the host wait though nobody asked it to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from simulated_cuda._operators import Operator
from simulated_cuda._tensor import CudaTensor

_BOOLEAN = (torch.bool, torch.uint8)


def check(
    operator: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[Tensor],
    on_gpu: list[CudaTensor],
) -> None:
    """Raise what CUDA raises before it starts an operation.

    Raises:
        RuntimeError: the arguments lie on different devices, or a generator on the CPU.
        NotImplementedError: CUDA cannot do it, and would not do it on the CPU instead.
    """
    home = on_gpu[0].gpu if on_gpu else None
    for tensor in on_gpu:
        if tensor.gpu != home:
            raise _elsewhere(operator, home, tensor.gpu)
    if on_gpu:
        for tensor in tensors:
            if not isinstance(tensor, CudaTensor):
                _check_cpu_tensor(operator, args, tensor, on_gpu[0])
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Generator) and value.device.type != "cuda":
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if operator.is_product and not (on_gpu[0].is_floating_point() or on_gpu[0].is_complex()):
        raise NotImplementedError(f'"{operator.name}_cuda" not implemented for {on_gpu[0].dtype}')


def _check_cpu_tensor(
    operator: Operator, args: tuple[Any, ...], tensor: Tensor, other: CudaTensor
) -> None:
    if operator.indexes:
        if not isinstance(args[0], CudaTensor):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        if tensor.dim() and len(args) > 2 and args[2] is tensor:
            raise _elsewhere(operator, other.gpu, tensor.device)
    elif tensor.dim() or not operator.takes_numbers:
        raise _elsewhere(operator, other.gpu, tensor.device)
    elif operator.writes and args[0] is tensor:
        raise RuntimeError(f"Output is on cpu, but an input of {operator.name} on {other.gpu}")


def _elsewhere(operator: Operator, *devices: Any) -> RuntimeError:
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{devices[0]} and {devices[1]}! (when checking the arguments of {operator.name})"
    )


def hidden_wait(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Why the host waits for an operation; None if it does not."""
    if operator.waits:
        return operator.name
    if operator.name == "repeat_interleave" and kwargs.get("output_size") is None:
        return "repeat_interleave without output_size"
    if not operator.indexes:
        return None
    indices = [index for index in args[1] if isinstance(index, Tensor)]
    if any(not isinstance(index, CudaTensor) for index in indices):
        return "indices from the CPU"
    if any(index.dtype in _BOOLEAN for index in indices) and not _is_fill(operator, args):
        return "boolean indices"
    return None


def _is_fill(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Whether all chosen elements get one number, which needs no count of them."""
    return operator.writes and args[2].numel() == 1 and not any(args[3:4])
