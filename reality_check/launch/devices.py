"""Which devices the workers of this machine train on.

A worker that is given GPUs sees no others (``CUDA_VISIBLE_DEVICES`` of its process), so that all it
starts, fold processes and the user's own code included, stays on them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import torch

from reality_check.utils.errors import UsageError

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def parse_devices(given: Sequence[str | int]) -> tuple[str, ...]:
    """Return the devices by torch's names, after checking that this machine has them.

    >>> parse_devices(["cpu"])
    ('cpu',)

    Args:
        given: numbers of GPUs, as numbers or ``cuda:N``, or ``cpu`` alone.

    Raises:
        UsageError: one is not a device, is not here, or stands there twice.
    """
    devices = tuple(_parse(str(device).strip()) for device in given)
    if len(set(devices)) < len(devices) or ("cpu" in devices and len(devices) > 1):
        raise UsageError(
            f"devices are {','.join(devices)}, but must be different GPUs, such as 0,1, or cpu "
            "alone."
        )
    count = torch.cuda.device_count()
    absent = [device for device in devices if device != "cpu" and _number(device) >= count]
    if absent:
        raise UsageError(
            f"device {absent[0]} is not here: torch {torch.__version__} sees {_gpus(count)}, or "
            "write cpu."
        )
    return devices


def _parse(name: str) -> str:
    match = re.fullmatch(r"(?:cuda:)?(\d+)", name)
    if match is None and name != "cpu":
        raise UsageError(
            f"{name!r} is not a device; write numbers of GPUs, such as 0,1 (or cuda:0,cuda:1), "
            "or cpu."
        )
    return "cpu" if match is None else f"cuda:{int(match[1])}"


def _gpus(count: int) -> str:
    if count == 0:
        return "0 GPUs; leave devices out"
    names = ",".join(str(number) for number in range(count))
    return f"{count} GPU{'s' if count > 1 else ''}; name some of {names}"


def _number(device: str) -> int:
    return int(device.partition(":")[2])


def share_out(
    devices: Sequence[str], workers: int | None, processes_per_network: int = 1
) -> list[tuple[str, ...]]:
    """Return the devices of each worker; an empty tuple where the experiment's ``device`` decides.

    Workers beyond the number of devices share them, in turn.

    Args:
        devices: see :func:`parse_devices`; may be empty.
        workers: how many; by default 1, or as many as there are devices.
        processes_per_network: how many processes of a worker train a network together, on a GPU
            each.

    Raises:
        UsageError: devices would be left over.
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
    """Return the environment variables with which a process sees only these devices."""
    if not devices:
        return {}
    seen = _seen()
    numbers = [_number(device) for device in devices if device != "cpu"]
    return {_VISIBLE: ",".join(str(n) if seen is None else seen[n] for n in numbers)}


def name_of(device: torch.device, count: int = 1) -> str:
    """Return the name of a device for logs: a GPU has its number on the machine.

    Args:
        device: where this process trains.
        count: how many GPUs its strategy has, from this one on.
    """
    if device.type != "cuda":
        return str(device)
    first = device.index or 0
    numbers = [str(n) for n in range(first, first + count)]
    seen = (_seen() or [])[first : first + count]
    return f"cuda:{','.join(seen or numbers)}"


def _seen() -> list[str] | None:
    """Return the GPUs that the environment makes visible to this process; None if all are."""
    text = os.environ.get(_VISIBLE)
    return None if text is None else [name.strip() for name in text.split(",")]
