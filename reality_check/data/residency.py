"""Keep samples on a GPU: each process uploads a data set once for all its folds."""

from __future__ import annotations

import contextlib
import warnings
import weakref

import numpy as np
import torch
from torch import Tensor

from pml_extensions.functional import free_memory

#: Share of a GPU's free memory that the samples of one data set may take.
_MEMORY_SHARE = 0.5
#: The environment variable that tells a worker how many workers share its GPU.
WORKERS_ON_GPU = "REALITY_CHECK_WORKERS_ON_GPU"


class DeviceArray:
    """An array of samples on a device, which its views share, so that they leave a GPU together.

    Attributes:
        tensor: the whole array.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = weakref.ref(array)  # a copy on a GPU does not keep the original alive
        self.tensor = as_tensor(array)

    def take_off(self) -> None:
        """Leave the device; later batches are taken from the array in main memory."""
        array = self._array()
        if array is not None:  # otherwise nobody needs a batch any more
            self.tensor = as_tensor(array)


#: Arrays on a device, by the id of the array in memory, as long as that exists, and the device.
_resident: dict[tuple[int, torch.device], DeviceArray] = {}
#: The keys of arrays that left the device when its memory ran out.
_evicted: set[tuple[int, torch.device]] = set()
_process_count = 1


def device_array(array: np.ndarray, device: torch.device) -> DeviceArray:
    """Return an array on a device, uploaded once; in main memory if it does not fit on a GPU."""
    key = (id(array), device)
    if key in _resident:
        return _resident[key]
    samples = DeviceArray(array)
    if device.type != "cpu" and key not in _evicted and _fits(array.nbytes, device):
        # Another process may have taken the memory in the meantime.
        with contextlib.suppress(torch.OutOfMemoryError):
            samples.tensor = samples.tensor.to(device)
            _resident[key] = samples
            weakref.finalize(array, _forget, key)
    return samples


def _forget(key: tuple[int, torch.device]) -> None:
    """Remove an array that no longer exists, because another one may get its id."""
    _resident.pop(key, None)
    _evicted.discard(key)


def share_gpu(processes: int) -> None:
    """Set the number of processes that upload samples to this GPU, including this one."""
    global _process_count
    _process_count = processes


def processes_on_gpu() -> int:
    """Return the number of processes that :func:`share_gpu` set, 1 by default."""
    return _process_count


def take_off_gpu() -> bool:
    """Remove all samples of this process from its GPU for good; return whether there were any."""
    any_resident = bool(_resident)
    for samples in _resident.values():
        samples.take_off()
    _evicted.update(_resident)
    _resident.clear()
    return any_resident


def as_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor that shares the memory of an array, which may be read-only."""
    with warnings.catch_warnings():
        # NumPy's warning about read-only arrays is irrelevant: nothing writes to the tensor.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


def _fits(nbytes: int, device: torch.device) -> bool:
    """Return whether the copies of all processes fit into the memory that they may take."""
    needed = nbytes * _process_count
    return device.type != "cuda" or needed <= _MEMORY_SHARE * free_memory(device)
