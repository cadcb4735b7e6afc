"""Copies between the host and the GPUs, and which of them the host waits for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from simulated_cuda._device import Device, where
from simulated_cuda._graphs import computed, refuse_in_a_graph
from simulated_cuda._tensor import CudaTensor, active

_CPU = torch.device("cpu")


def copy_to(source: Tensor, **options: Any) -> Tensor:
    """``aten::_to_copy``: a tensor of another device, type or layout."""
    device, home = active(), _home(source)
    target = home if options.get("device") is None else device.numbered(options["device"])
    non_blocking = options.pop("non_blocking", False)
    options |= {"device": _CPU, "pin_memory": None}
    if home.type == "cpu":
        _begin_upload(device, source, non_blocking)
    copy = functools.partial(torch.ops.aten._to_copy.default, _plain(source), **options)
    plain = (
        copy() if device.recording is None else device.recording.run(copy, [_plain(source)], False)
    )
    if target.type == "cuda":
        device.start("_to_copy", target.index)
        device.note_doubles("_to_copy", [plain])
        return CudaTensor(plain, target)
    if not non_blocking:
        device.wait("copy to the host")
        return plain
    refuse_in_a_graph(device, "copy to the host", where())
    # torch takes page-locked memory for a copy to the host that nobody waits for.
    pinned = device.page_locked.pin(plain)
    return device.page_locked.download(plain, pinned)


def copy_into(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """``aten::copy_``: a tensor's values, into memory that is there."""
    device = active()
    to_host, from_host = _home(target).type == "cpu", _home(source).type == "cpu"
    if from_host and not to_host:
        _begin_upload(device, source, non_blocking)
    if to_host and non_blocking and device.page_locked.is_pinned(target):
        refuse_in_a_graph(device, "copy to the host", where())
        device.page_locked.download(_plain(source).to(target.dtype).expand_as(target), target)
        return target
    if to_host:
        device.wait("copy to the host")
    else:
        device.start("copy_", _home(target).index)
    copy = functools.partial(_plain(target).copy_, _plain(source))
    computed(device, copy, [_plain(target), _plain(source)], writes=True)
    return target


def _begin_upload(device: Device, source: Tensor, non_blocking: bool) -> None:
    if not non_blocking:
        device.wait("blocking copy to the GPU")
    elif device.page_locked.is_pinned(source):
        device.upload("pinned")
        device.page_locked.upload_from(source, where())
    else:
        device.upload("pageable")


def _home(tensor: Tensor) -> torch.device:
    return tensor.gpu if isinstance(tensor, CudaTensor) else _CPU


def _plain(tensor: Tensor) -> Tensor:
    return tensor.on_cpu if isinstance(tensor, CudaTensor) else tensor
