"""Moves samples from a full GPU to main memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from reality_check.data.residency import take_off_gpu
from reality_check.studies.finished import stamped

Result = TypeVar("Result")


def once_more_if_full(device: torch.device, work: Callable[[], Result]) -> Result:
    """Do some work; if the GPU is out of memory, retry it with the samples in main memory.

    Args:
        work: a function that continues where an interrupted call ended.

    Raises:
        torch.OutOfMemoryError: no samples lie there, or they are not what fills it.
    """
    try:
        return work()
    except torch.OutOfMemoryError:
        if not take_off_gpu():
            raise
    gc.collect()  # circles of objects hold tensors
    print(stamped(f"{device} is full, so its samples move to main memory; continuing"), flush=True)
    return work()
