"""Computes operations of simulated tensors on the CPU, by the rules of CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from simulated_cuda._device import Device, where
from simulated_cuda._graphs import computed, plain_tensors, refuse_in_a_graph
from simulated_cuda._kernels import cpu_kernel
from simulated_cuda._operators import Operator, known
from simulated_cuda._rules import check, hidden_wait
from simulated_cuda._tensor import CudaTensor, active
from simulated_cuda._transfers import copy_into, copy_to

_CPU = torch.device("cpu")


class Dispatch(TorchDispatchMode):
    """Sees the operations that no simulated tensor is an argument of, and so may create one."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and keeping the compiler out would import it."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator returns, as CUDA would compute it."""
    if func is torch.ops.prim.device.default:
        return args[0].gpu
    device = active()
    tensors = list(_tensors((*args, *kwargs.values())))
    on_gpu = [tensor for tensor in tensors if isinstance(tensor, CudaTensor)]
    target = kwargs.get("device")
    target = None if target is None else device.numbered(target)
    if not on_gpu and (target is None or target.type != "cuda"):
        return _on_cpu(func, args, kwargs, device)
    operator = known(func)
    if not operator.looks_only:
        device.raise_if_broken()
    if operator.copies:
        return (copy_into if operator.writes else copy_to)(*args, **kwargs)
    check(operator, args, kwargs, tensors, on_gpu)
    return _compute(func, operator, args, kwargs, on_gpu, target or on_gpu[0].gpu)


def _compute(
    func: Any,
    operator: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    on_gpu: list[CudaTensor],
    home: torch.device,
) -> Any:
    device = active()
    waits_for = hidden_wait(operator, args, kwargs)
    if waits_for:
        device.wait(waits_for)
    if not operator.looks_only:
        device.start(operator.name, home.index)
    plain_args = [_map(_plain, value) for value in args]
    plain_kwargs = {name: _map(_plain, value) for name, value in kwargs.items()}
    if "device" in kwargs:
        plain_kwargs["device"] = _CPU
    compute = functools.partial(cpu_kernel(operator, func), *plain_args, **plain_kwargs)
    run: Callable[[], Any] = compute
    if operator.draws and home.type == "cuda":
        if any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values())):
            refuse_in_a_graph(device, "a generator that the graph does not know", where())
        run = functools.partial(device.random.draw, home.index, compute)
    try:
        if operator.looks_only:
            result = run()
        else:
            plain = plain_tensors((*args, *kwargs.values()))
            result = computed(device, run, plain, operator.writes)
    except IndexError as error:  # a GPU tells it at the next wait, and is of no use from then on
        device.break_down(str(error))
        device.raise_if_broken()
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise torch.OutOfMemoryError(f"CUDA out of memory ({error})") from error
        raise
    if operator.writes:
        _follow(func, operator, args, kwargs, on_gpu)
    if operator.is_product or operator.name.startswith("convolution"):
        device.note_tf32(operator.name, operator.is_product, _tensors(plain_args))
    if not operator.looks_only:
        device.note_doubles(operator.name, _tensors((*plain_args, *plain_kwargs.values(), result)))
    if home.type != "cuda":
        return result
    known_tensors = {id(tensor.on_cpu): tensor for tensor in on_gpu}

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        same = known_tensors.get(id(value))
        return CudaTensor(value, home) if same is None else same

    return _map(wrapped, result)


def _follow(
    func: Any,
    operator: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    on_gpu: list[CudaTensor],
) -> None:
    """Give a tensor the shape that an operation in place gave the one on the CPU."""
    if operator.reshapes:
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
    for tensor in on_gpu:
        if tensor.layout == torch.strided and tensor.shape != tensor.on_cpu.shape:
            raise NotImplementedError(
                f"{operator.name} changes a shape in place; the simulated GPU cannot follow"
            )


def _on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: Device) -> Any:
    """An operation of the CPU; page-locked memory needs a driver, which is simulated too."""
    if not kwargs.get("pin_memory"):
        return func(*args, **kwargs)
    return device.page_locked.pin(func(*args, **{**kwargs, "pin_memory": None}))


def _plain(value: Any) -> Any:
    return value.on_cpu if isinstance(value, CudaTensor) else value


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_map(change, part) for part in value])
    return change(value)
