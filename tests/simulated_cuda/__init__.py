"""A CUDA device that is pretended on the CPU: real values, CUDA's rules, and every wait counted.

    pytest -p simulated_cuda.plugin -m gpu

A tensor "on cuda" is a subclass of Tensor that shares its memory with a CPU tensor and has the
dispatch keys of CUDA, so that autocast, autograd and device checks see CUDA. All operations pass
:mod:`simulated_cuda._dispatch`, which computes them on the CPU after it has applied the rules.

docs/contributing.md says what this device can and cannot see.
"""

from simulated_cuda._device import Device
from simulated_cuda._patches import simulated_cuda
from simulated_cuda._support import why_not
from simulated_cuda._tensor import current

__all__ = ["Device", "current", "simulated_cuda", "why_not"]
