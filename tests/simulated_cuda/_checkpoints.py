"""Tensors in files remember on which GPU they lay, and return there unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from simulated_cuda._device import Device
from simulated_cuda._tensor import CudaTensor


@contextmanager
def checkpoints_name_gpus(device: Device) -> Iterator[None]:
    """Have ``torch.save`` and ``torch.load`` treat simulated tensors as those of GPUs."""
    restored: dict[int, torch.device] = {}
    rebuild = torch._utils._rebuild_tensor

    def name(storage: Any) -> str | None:
        memory = getattr(storage, "_untyped_storage", storage)
        for number, one in enumerate(device.memory):
            if one.holds(memory):
                return f"cuda:{number}"
        return None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        if not torch.cuda.is_available():
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() "
                "is False. If you are running on a CPU-only machine, please use torch.load with "
                "map_location=torch.device('cpu') to map your storages to the CPU."
            )
        restored[storage._cdata] = device.numbered(location)
        return storage

    def rebuilt(storage: Any, *rest: Any) -> Tensor:
        tensor = rebuild(storage, *rest)
        gpu = restored.pop(storage._untyped_storage._cdata, None)
        if gpu is None:
            return tensor
        device.wait("reading a checkpoint to the GPU")
        return CudaTensor(tensor, gpu)

    registry = torch.serialization._package_registry
    first = min(priority for priority, *_ in registry) - 1
    torch.serialization.register_package(first, name, restore)
    entry = next(entry for entry in registry if entry[1] is name)
    try:
        with mock.patch("torch._utils._rebuild_tensor", rebuilt):
            yield
    finally:
        registry.remove(entry)
