"""Which samples lie on a GPU: a data set is uploaded once a process, for all its folds."""

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
#: The variable that tells a worker how many of them have its GPU.
WORKERS_ON_GPU = "REALITY_CHECK_WORKERS_ON_GPU"


class DeviceArray:
    """Samples, where they are: their views look here, so that they can be taken off a GPU.

    Attributes:
        tensor: the whole array.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array = weakref.ref(array)
        self.tensor = as_tensor(array)

    def take_off(self) -> None:
        """Leave the device; batches come from the array from now on."""
        array = self._array()
        if array is not None:
            self.tensor = as_tensor(array)


#: What is on a device, by the array's identity, for as long as the array lives.
_resident: dict[tuple[int, torch.device], DeviceArray] = {}
#: What was, until memory ran out.
_taken_off: set[tuple[int, torch.device]] = set()
_sharing = 1


def device_array(array: np.ndarray, device: torch.device) -> DeviceArray:
    """Put samples on a device, once for each array, if they take no more of it than they may."""
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
    """Say how many processes have this one's GPU and upload samples, itself included."""
    global _sharing
    _sharing = processes


def processes_on_gpu() -> int:
    """The number that :func:`share_gpu` was told."""
    return _sharing


def take_off_gpu() -> bool:
    """Take all samples of this process off its GPU, for good; whether there were any."""
    any_resident = bool(_resident)
    for samples in _resident.values():
        samples.take_off()
    _taken_off.update(_resident)
    _resident.clear()
    return any_resident


def as_tensor(array: np.ndarray) -> Tensor:
    """An array, which may be read-only, as a tensor of the same memory."""
    with warnings.catch_warnings():
        # A read-only array warns; nothing here writes to it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


def _fits(nbytes: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return nbytes * _sharing <= _SHARE * free_memory(device)
