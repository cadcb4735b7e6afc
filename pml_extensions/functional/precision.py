"""TF32 on a GPU, allowed or forbidden whichever switch there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_tf32(device: torch.device) -> Iterator[None]:
    """Keep TF32 out of float32 products on a GPU meanwhile, by whichever switch it was allowed."""
    with _switched(_of_products() if device.type == "cuda" else [], False):
        yield


@contextmanager
def allow_tf32(device: torch.device, allowed: bool) -> Iterator[None]:
    """Allow TF32 in float32 products, convolutions and recurrent layers on a GPU, or forbid it.

    torch forbids it in products and allows it in cuDNN, so that float32 has ten bits there.

    Args:
        device: where networks run; elsewhere nothing changes.
        allowed: whether, until the end of the context.
    """
    switches = [*_of_products(), *_of_cudnn()] if device.type == "cuda" else []
    with _switched(switches, allowed):
        yield


#: Who has a switch, and its name.
_Switches = Sequence[tuple[Any, str]]
_VALUES: dict[str, dict[bool, Any]] = {
    "allow_tf32": {False: False, True: True},
    "fp32_precision": {False: "ieee", True: "tf32"},
}


def _of_products() -> _Switches:
    owner = torch.backends.cuda.matmul
    # From torch 2.9 on, reading the old switch raises where somebody has used the new one.
    return [(owner, "fp32_precision" if hasattr(owner, "fp32_precision") else "allow_tf32")]


def _of_cudnn() -> _Switches:
    cudnn: Any = torch.backends.cudnn
    old = [(cudnn, "allow_tf32")]
    if not hasattr(cudnn, "conv"):
        return old
    new = [(cudnn.conv, "fp32_precision"), (cudnn.rnn, "fp32_precision")]
    try:
        _ = cudnn.allow_tf32
    except RuntimeError:
        return new
    # The old one in step: torch.backends.cudnn.flags() raises where they contradict each other.
    return [*old, *new]


@contextmanager
def _switched(switches: _Switches, on: bool) -> Iterator[None]:
    before = [getattr(owner, name) for owner, name in switches]
    for owner, name in switches:
        setattr(owner, name, _VALUES[name][on])
    try:
        yield
    finally:
        for (owner, name), value in zip(switches, before, strict=True):
            setattr(owner, name, value)
