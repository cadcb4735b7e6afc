"""Allowing and forbidding TF32 on a GPU, with torch's old and new switches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_tf32(device: torch.device) -> Iterator[None]:
    """Forbid TF32 in float32 matrix products on a GPU within this context."""
    with _set_temporarily(_matmul_switches() if device.type == "cuda" else [], False):
        yield


@contextmanager
def allow_tf32(device: torch.device, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in float32 matrix products, convolutions and recurrent layers on a GPU.

    By default torch forbids it in matrix products and allows it in cuDNN, where float32 then has a
    mantissa of ten bits.

    Args:
        device: Device of the network; nothing changes unless it is a CUDA device.
        allowed: Whether TF32 is allowed within this context.
    """
    switches = [*_matmul_switches(), *_cudnn_switches()] if device.type == "cuda" else []
    with _set_temporarily(switches, allowed):
        yield


#: Object and name of the attribute of each switch.
_Switches = Sequence[tuple[Any, str]]
#: Name of the attribute -> whether TF32 is allowed -> value.
_VALUES: dict[str, dict[bool, Any]] = {
    "allow_tf32": {False: False, True: True},
    "fp32_precision": {False: "ieee", True: "tf32"},
}


def _matmul_switches() -> _Switches:
    """Return the switch of matrix products, the new one if torch has it."""
    owner = torch.backends.cuda.matmul
    # From torch 2.9 on, reading the old switch raises RuntimeError once the new one was set.
    return [(owner, "fp32_precision" if hasattr(owner, "fp32_precision") else "allow_tf32")]


def _cudnn_switches() -> _Switches:
    """Return the switches of cuDNN, old and new, that the installed torch can use."""
    cudnn: Any = torch.backends.cudnn
    old = [(cudnn, "allow_tf32")]
    if not hasattr(cudnn, "conv"):
        return old
    new = [(cudnn.conv, "fp32_precision"), (cudnn.rnn, "fp32_precision")]
    try:
        _ = cudnn.allow_tf32
    except RuntimeError:  # the new switches were set to values that the old one does not have
        return new
    # Both are set, because torch.backends.cudnn.flags() raises if they contradict each other.
    return [*old, *new]


@contextmanager
def _set_temporarily(switches: _Switches, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 by all switches within this context, and restore them afterwards."""
    before = [getattr(owner, name) for owner, name in switches]
    for owner, name in switches:
        setattr(owner, name, _VALUES[name][allowed])
    try:
        yield
    finally:
        for (owner, name), value in zip(switches, before, strict=True):
            setattr(owner, name, value)
