"""What is done where a GPU's memory runs out: the samples that lie there make room."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from reality_check.data.residency import take_off_gpu
from reality_check.studies.finished import stamped

Result = TypeVar("Result")


def once_more_if_full(device: torch.device, work: Callable[[], Result]) -> Result:
    """Do some work; where memory runs out, once more without the samples that lie on the GPU.

    Args:
        work: that finds by itself what was done already.

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
