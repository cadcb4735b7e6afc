"""Replaces what of torch would ask the driver of a GPU."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.optim import optimizer as torch_optimizer

from simulated_cuda._checkpoints import checkpoints_name_gpus
from simulated_cuda._device import Device
from simulated_cuda._dispatch import Dispatch
from simulated_cuda._driver import need_no_driver
from simulated_cuda._graphs import of_graphs
from simulated_cuda._tensor import CudaTensor, activated, active, current

_80_GIB = 80 << 30


@contextmanager
def simulated_cuda(gpus: int = 1, memory: int = _80_GIB) -> Iterator[Device]:
    """Have torch see GPUs meanwhile, in this thread.

    Args:
        gpus: how many.
        memory: bytes of each.
    """
    if current() is None and torch.cuda.is_available():
        pytest.skip("this machine has a GPU, beside which none is simulated")
    device = Device(gpus, memory)
    need_no_driver()
    with ExitStack() as stack:
        stack.enter_context(activated(device))
        for owner, functions in (
            (torch.cuda, _of_cuda(device) | of_graphs(device)),
            (torch, _of_torch()),
            (Tensor, _of_tensors()),
        ):
            for name, function in functions.items():
                stack.enter_context(mock.patch.object(owner, name, function))
        attention = _attention(torch.nn.functional.scaled_dot_product_attention)
        stack.enter_context(
            mock.patch("torch.nn.functional.scaled_dot_product_attention", attention)
        )
        _set_switches(stack)
        stack.enter_context(checkpoints_name_gpus(device))
        stack.enter_context(Dispatch())
        yield device


def _set_switches(stack: ExitStack) -> None:
    """No cuDNN, no threads of the engine (they would ask for devices), and modules swap tensors."""
    stack.enter_context(mock.patch("torch.backends.cudnn.is_available", return_value=False))
    stack.enter_context(torch.backends.cudnn.flags(enabled=False))
    stack.enter_context(torch.autograd.set_multithreading_enabled(False))
    swap = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    stack.callback(torch.__future__.set_swap_module_params_on_conversion, swap)
    supported = torch_optimizer._foreach_supported_types
    supported.append(CudaTensor)
    stack.callback(supported.remove, CudaTensor)


def _of_cuda(device: Device) -> dict[str, Any]:
    """Functions of ``torch.cuda``."""

    def memory(which: Any = None) -> Any:
        return device.memory[device.number(which)]

    def set_device(which: Any) -> None:
        device.current = device.number(which)

    def exchange(number: int) -> int:
        before = device.current
        device.current = before if number < 0 else number
        return before

    def reset_peak(which: Any = None) -> None:
        memory(which).peak = memory(which).live

    def empty_cache() -> None:
        for one in device.memory:
            one.empty_cache()

    def free(which: Any = None) -> tuple[int, int]:
        return memory(which).total - memory(which).reserved, memory(which).total

    def properties(which: Any = None) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            name="simulated GPU",
            uuid=f"simulated-{device.number(which)}",
            total_memory=memory(which).total,
            multi_processor_count=132,
            major=9,
            minor=0,
        )

    return {
        "is_available": lambda: device.gpus > 0,
        "device_count": lambda: device.gpus,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "current_device": lambda: device.current,
        "set_device": set_device,
        "_exchange_device": exchange,
        "_maybe_exchange_device": exchange,
        "synchronize": lambda which=None: device.wait("synchronize"),
        "set_sync_debug_mode": device.set_debug_mode,
        "get_sync_debug_mode": device.debug_mode,
        "mem_get_info": free,
        "memory_allocated": lambda which=None: memory(which).live,
        "memory_reserved": lambda which=None: memory(which).reserved,
        "max_memory_allocated": lambda which=None: memory(which).peak,
        "reset_peak_memory_stats": reset_peak,
        "empty_cache": empty_cache,
        "get_device_properties": properties,
        "get_device_name": lambda which=None: "simulated GPU",
        "get_device_capability": lambda which=None: (9, 0),
        "is_bf16_supported": lambda *_, **__: True,
        "manual_seed": device.random.seed_all,
        "manual_seed_all": device.random.seed_all,
        "get_rng_state": lambda which=None: device.random.state(device.number(which)),
        "set_rng_state": lambda state, which=None: device.random.set_state(
            state, device.number(which)
        ),
    }


def _of_torch() -> dict[str, Any]:
    """Constructors that copy Python's numbers, by way of the CPU."""
    tensor, as_tensor = torch.tensor, torch.as_tensor

    def made(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        on_cpu = tensor(data, **options)
        return on_cpu if device is None else on_cpu.to(device)

    def taken(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        if isinstance(data, Tensor):
            return data.to(data.device if device is None else device, dtype)
        on_cpu = as_tensor(data, dtype=dtype)
        return on_cpu if device is None else on_cpu.to(device)

    return {"tensor": made, "as_tensor": taken}


def _of_tensors() -> dict[str, Any]:
    """Methods of tensors."""
    to, new_tensor = Tensor.to, Tensor.new_tensor

    def moved(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args and _is_cuda(args[0]):
            args = (active().numbered(args[0]), *args[1:])
        if _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": active().numbered(kwargs["device"])}
        return to(self, *args, **kwargs)

    def to_gpu(
        self: Tensor, which: Any = None, non_blocking: bool = False, **options: Any
    ) -> Tensor:
        gpu = active().numbered("cuda" if which is None else which)
        return to(self, gpu, non_blocking=non_blocking, **options)

    def copied(self: Tensor, data: Any, *, device: Any = None, **options: Any) -> Tensor:
        if not isinstance(self, CudaTensor):
            return new_tensor(self, data, device=device, **options)
        options = {"dtype": self.dtype, **options}
        return torch.tensor(data, **options).to(self.gpu if device is None else device)

    return {
        "to": moved,
        "cuda": to_gpu,
        "new_tensor": copied,
        "pin_memory": lambda self, device_=None: active().page_locked.pin(self),
        "is_pinned": lambda self, device_=None: active().page_locked.is_pinned(self),
    }


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, int) or (isinstance(value, str) and value.startswith("cuda"))


def _attention(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Attention without torch's choice among kernels, which asks the driver for the GPU's kind."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
        if not isinstance(query, CudaTensor):
            return plain(query, key, value, attn_mask, dropout_p, is_causal, **options)
        compute = torch.ops.aten._scaled_dot_product_attention_math
        return compute(query, key, value, attn_mask, dropout_p, is_causal, None, **options)[0]

    return attention
