"""Whether the simulation can run here: it leans on inner parts of torch that may change."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
from typing import TextIO

import torch


@functools.cache
def why_not() -> str | None:
    """Why GPUs cannot be simulated here, as one sentence; None: they can.

    It is tried in a process of its own, which a wrong guess about C++ may crash.
    """
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} was built without CUDA, so no GPU can be simulated."
    if not hasattr(os, "fork"):
        return f"GPUs are simulated on systems that can fork, which {sys.platform} cannot."
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = os.fork()
        if process == 0:
            os.dup2(output.fileno(), 2)
            os._exit(_status(output))
        _, status = os.waitpid(process, 0)
        output.seek(0)
        lines = [line.strip() for line in output if line.strip()]
    if status == 0:
        return None
    cause = lines[-1] if lines else f"status {status}"
    return (
        f"no GPU can be simulated with torch {torch.__version__}: a step of training failed "
        f"({cause})."
    )


def _status(output: TextIO) -> int:
    """What the process that tries ends with."""
    try:
        _try()
    except BaseException:
        traceback.print_exc(file=output)
        output.flush()
        return 1
    return 0


def _try() -> None:
    """A step of training, by which every part is needed that torch may have changed."""
    from simulated_cuda._patches import simulated_cuda

    with simulated_cuda() as device:
        layer = torch.nn.Linear(3, 2).cuda()
        optimizer = torch.optim.Adam(layer.parameters())
        x = torch.arange(12.0).view(4, 3).pin_memory().to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
        assert y.dtype == torch.bfloat16, y.dtype
        y.float().square().sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.device == torch.device("cuda", 0), layer.weight.grad.device
        device.reset()
        optimizer.step()
        assert not device.waits, device.waits
        assert layer.weight.sum().item() != 0
        assert sum(device.waits.values()) == 1, device.waits
