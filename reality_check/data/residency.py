"""Samples on a GPU: each process uploads a data set once, for all its folds."""

from __future__ import annotations

import contextlib
import warnings
import weakref

import numpy as np
import torch
from torch import Tensor

from pml_extensions.functional import free_memory

#: Share of a GPU's free memory that the samples of one data set may take.
_SHARE = 0.5
#: The environment variable with the number of workers that share a worker's GPU.
WORKERS_ON_GPU = "REALITY_CHECK_WORKERS_ON_GPU"


class DeviceArray:
    """An array of samples on a device; its views share this, so that it can leave a GPU.

    Attributes:
        tensor: the whole array.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = weakref.ref(array)
        self.tensor = as_tensor(array)

    def take_off(self) -> None:
        """Leave the device; later batches come from the array in memory."""
        array = self._array()
        if array is not None:
            self.tensor = as_tensor(array)


#: Arrays on a device, by identity, for as long as they live.
_resident: dict[tuple[int, torch.device], DeviceArray] = {}
#: Arrays that left the device when its memory ran out.
_taken_off: set[tuple[int, torch.device]] = set()
_sharing = 1


def device_array(array: np.ndarray, device: torch.device) -> DeviceArray:
    """Return an array on a device, uploaded once, or in memory if it takes too much of a GPU."""
    key = (id(array), device)
    if key in _resident:
        return _resident[key]
    samples = DeviceArray(array)
    if device.type != "cpu" and key not in _taken_off and _fits(array.nbytes, device):
        # Where others were faster there is no room any more.
        with contextlib.suppress(torch.OutOfMemoryError):
            samples.tensor = samples.tensor.to(device)
            _resident[key] = samples
            weakref.finalize(array, _forget, key)
    return samples


def _forget(key: tuple[int, torch.device]) -> None:
    _resident.pop(key, None)
    _taken_off.discard(key)


def share_gpu(processes: int) -> None:
    """Set the number of processes that upload samples to this GPU, including this one."""
    global _sharing
    _sharing = processes


def processes_on_gpu() -> int:
    """Return the number that :func:`share_gpu` set."""
    return _sharing


def take_off_gpu() -> bool:
    """Remove all samples of this process from its GPU for good; return whether there were any."""
    any_resident = bool(_resident)
    for samples in _resident.values():
        samples.take_off()
    _taken_off.update(_resident)
    _resident.clear()
    return any_resident


def as_tensor(array: np.ndarray) -> Tensor:
    """Return an array, which may be read-only, as a tensor that shares its memory."""
    with warnings.catch_warnings():
        # A read-only array warns; nothing here writes to it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


def _fits(nbytes: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return nbytes * _sharing <= _SHARE * free_memory(device)
