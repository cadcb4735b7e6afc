"""Free memory of a GPU."""

from __future__ import annotations

import torch


def free_memory(device: torch.device) -> int:
    """Return the number of bytes that this process can still allocate on a GPU.

    Memory that torch's caching allocator has reserved but not allocated counts as free.
    """
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
