"""The devices that the workers of this machine train on.

A worker sees only its own GPUs (``CUDA_VISIBLE_DEVICES`` of its process), so that its fold
processes and the user's code cannot use other GPUs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import torch

from reality_check.utils.errors import UsageError

_VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


def parse_devices(requested: Sequence[str | int]) -> tuple[str, ...]:
    """Return torch's names of the devices, after checking that this machine has them.

    >>> parse_devices(["cpu"])
    ('cpu',)

    Args:
        requested: GPUs, each as a number or as ``cuda:N``; or ``cpu`` alone.

    Raises:
        UsageError: one of them is not a device, does not exist here, or is given twice.
    """
    devices = tuple(_parse_device(str(device).strip()) for device in requested)
    if len(set(devices)) < len(devices) or ("cpu" in devices and len(devices) > 1):
        raise UsageError(
            f"devices are {','.join(devices)}, but must be different GPUs, such as 0,1, or cpu "
            "alone."
        )
    count = torch.cuda.device_count()
    absent = [device for device in devices if device != "cpu" and _gpu_number(device) >= count]
    if absent:
        raise UsageError(
            f"device {absent[0]} is not here: torch {torch.__version__} sees "
            f"{_describe_gpus(count)}, or write cpu."
        )
    return devices


def _parse_device(name: str) -> str:
    """Return torch's name of a device, such as ``cuda:0`` for ``0``."""
    match = re.fullmatch(r"(?:cuda:)?(\d+)", name)
    if match is None and name != "cpu":
        raise UsageError(
            f"{name!r} is not a device; write numbers of GPUs, such as 0,1 (or cuda:0,cuda:1), "
            "or cpu."
        )
    return "cpu" if match is None else f"cuda:{int(match[1])}"


def _describe_gpus(count: int) -> str:
    if count == 0:
        return "0 GPUs; leave devices out"
    names = ",".join(str(number) for number in range(count))
    return f"{count} GPU{'s' if count > 1 else ''}; name some of {names}"


def _gpu_number(device: str) -> int:
    return int(device.partition(":")[2])


def share_out(
    devices: Sequence[str], workers: int | None, processes_per_network: int = 1
) -> list[tuple[str, ...]]:
    """Return the devices of each worker; an empty tuple if it uses the experiment's ``device``.

    If there are more workers than devices, workers share devices in turn.

    Args:
        devices: the devices, as :func:`parse_devices` returns them; may be empty.
        workers: the number of workers; by default 1, or one for each group of devices.
        processes_per_network: the number of processes of a worker that train a network together,
            each on its own GPU.

    Raises:
        UsageError: some devices would not be used.
    """
    if not devices or devices[0] == "cpu":
        return [tuple(devices)] * (workers or 1)
    if len(devices) % processes_per_network:
        raise UsageError(
            f"devices are {','.join(devices)}, which cannot be divided among workers of "
            f"{processes_per_network} processes each (--processes-per-network); "
            f"name a multiple of {processes_per_network}."
        )
    groups = [
        tuple(devices[n : n + processes_per_network])
        for n in range(0, len(devices), processes_per_network)
    ]
    count = len(groups) if workers is None else workers
    if count < len(groups):
        raise UsageError(
            f"{len(devices)} devices are too many for workers={count}, each of which trains on "
            f"{processes_per_network}; write --workers {len(groups)}, or name fewer devices."
        )
    return [groups[n % len(groups)] for n in range(count)]


def environment(devices: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that make only these devices visible to a process."""
    if not devices:
        return {}
    visible = _visible_gpus()
    numbers = [_gpu_number(device) for device in devices if device != "cpu"]
    # These numbers count the GPUs that this process sees; the variable needs their names outside.
    return {_VISIBLE_VARIABLE: ",".join(str(n) if visible is None else visible[n] for n in numbers)}


def name_of(device: torch.device, count: int = 1) -> str:
    """Return the name of a device for logs, with the numbers that GPUs have on the machine.

    Args:
        device: the device of this process.
        count: the number of GPUs that train together, starting with ``device``.
    """
    if device.type != "cuda":
        return str(device)
    first = device.index or 0
    numbers = [str(n) for n in range(first, first + count)]
    # The names of these GPUs on the machine, if this process does not see all of them.
    visible = (_visible_gpus() or [])[first : first + count]
    return f"cuda:{','.join(visible or numbers)}"


def _visible_gpus() -> list[str] | None:
    """Return the GPUs that are visible to this process, or ``None`` if all of them are."""
    text = os.environ.get(_VISIBLE_VARIABLE)
    return None if text is None else [name.strip() for name in text.split(",")]
