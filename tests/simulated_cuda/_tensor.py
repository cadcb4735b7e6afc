"""A tensor on a simulated GPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from simulated_cuda._device import Device

_active: list[Device] = []


@contextmanager
def activated(device: Device) -> Iterator[None]:
    """Have tensors lie on these GPUs meanwhile."""
    _active.append(device)
    try:
        yield
    finally:
        _active.pop()


def active() -> Device:
    """The GPUs of the simulation that is on."""
    return _active[-1]


def current() -> Device | None:
    """The same; None if none is on."""
    return _active[-1] if _active else None


@contextmanager
def plainly() -> Iterator[None]:
    """Compute with CPU tensors, past the simulation."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


class CudaTensor(Tensor):
    """A tensor with the dispatch keys of CUDA that shares its memory with a CPU tensor.

    Attributes:
        on_cpu: that tensor.
        gpu: the device, with its number.
    """

    on_cpu: Tensor
    gpu: torch.device

    @staticmethod
    def __new__(cls, on_cpu: Tensor, gpu: torch.device) -> CudaTensor:
        if on_cpu.layout == torch.strided:
            made = Tensor._make_subclass(
                cls, on_cpu, False, dispatch_device=True, device_for_backend_keys=gpu
            )
            made._allocation = active().memory[gpu.index].allocation(on_cpu)
        else:
            made = Tensor._make_wrapper_subclass(
                cls, on_cpu.size(), dtype=on_cpu.dtype, layout=on_cpu.layout, device=gpu
            )
        made.on_cpu, made.gpu = on_cpu, gpu
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from simulated_cuda._dispatch import dispatch  # it knows this class

        return dispatch(func, args, kwargs or {})

    is_cuda = True

    @property
    def data(self) -> Tensor:
        """The same without a gradient; setting it moves the tensor to other memory."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, CudaTensor):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have "
                "incompatible tensor type."
            )
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.on_cpu, self.gpu, self._allocation = value.on_cpu, value.gpu, value._allocation

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(self._own(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(self._own(index), value)

    def _own(self, index: Any) -> Any:
        """An index whose lists of numbers lie on the GPU, where torch would copy them unseen."""
        if isinstance(index, tuple):
            return tuple(self._own(part) for part in index)
        if isinstance(index, np.ndarray) or (isinstance(index, list) and _are_numbers(index)):
            return torch.as_tensor(index).to(self.gpu)
        return index

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(
            f"can't convert {self.gpu} device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the simulated GPU does not share its memory")

    def pin_memory(self, device: Any = None) -> Tensor:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return f"{self.detach().cpu()!r} on {self.gpu} (simulated)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support deepcopy")
        copy: Any = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)  # type: ignore[operator]
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self, torch.nn.Parameter):
            plain = (self.detach(), self.requires_grad, OrderedDict())
            return torch._utils._rebuild_parameter, plain
        active().wait("pickle")
        with plainly():
            return self.on_cpu.__reduce_ex__(protocol)


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, int | np.integer) for value in values)
