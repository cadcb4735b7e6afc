"""Moving samples from a full GPU to main memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from reality_check.data.residency import take_off_gpu
from reality_check.studies.finished import stamped

Result = TypeVar("Result")


def once_more_if_full(device: torch.device, work: Callable[[], Result]) -> Result:
    """Call ``work``; if the GPU is out of memory, repeat it with the samples in main memory.

    Args:
        device: the GPU, for the message.
        work: a function that continues where an interrupted call ended.

    Raises:
        torch.OutOfMemoryError: there are no samples on the GPU, or moving them is not enough.
    """
    try:
        return work()
    except torch.OutOfMemoryError:
        if not take_off_gpu():
            raise
    gc.collect()  # reference cycles keep tensors alive
    print(stamped(f"{device} is full, so its samples move to main memory; continuing"), flush=True)
    return work()
