"""What a device has room for."""

from __future__ import annotations

import torch


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process can still allocate on a GPU.

    What torch's allocator holds and nobody uses counts as taken for the driver, but is free here.
    """
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
