"""Counters of the energy that parts of this machine have used: NVML for GPUs, RAPL for processors.

A counter counts what everything on the machine uses, not only this process; where it begins is not
known, so that only differences mean anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

#: Where Linux shows the counters of processors (RAPL; Intel's and AMD's).
RAPL = Path("/sys/class/powercap")
_INSTALL = "pip install 'pml-extensions[energy]'"
_ZONES = {"package": "processors", "dram": "memory"}


@dataclass(frozen=True)
class Counter:
    """One counter.

    Attributes:
        key: what tells it from all others of this machine.
        part: ``gpus``, ``processors`` or ``memory``.
        wraps_at: joules after which it begins at 0 again; ``None`` for never.
        read: joules since an unknown beginning; raises OSError where it cannot be read any more.
    """

    key: str
    part: str
    wraps_at: float | None
    read: Callable[[], float]


def find_counters(
    device: torch.device, count: int = 1, rapl: Path = RAPL
) -> tuple[list[Counter], list[str]]:
    """The counters of ``count`` GPUs from ``device`` on, and of this machine's processors.

    Returns:
        Those that can be read, and a sentence for each part whose counters cannot.
    """
    found, missing = _processors(rapl)
    if device.type == "cuda":
        for index in range(device.index or 0, (device.index or 0) + count):
            try:
                found.append(_gpu(index))
            except ImportError:
                missing.append(f"GPU {index} cannot be read without nvidia-ml-py ({_INSTALL}).")
            except Exception as error:  # whatever it is, no training shall fail for it
                missing.append(f"GPU {index} has no counter ({type(error).__name__}: {error}).")
    return found, missing


def _processors(rapl: Path) -> tuple[list[Counter], list[str]]:
    found, missing = [], []
    # Not psys, which holds the others; core and uncore are parts of their package.
    for zone in sorted(rapl.glob("intel-rapl:*")):
        try:
            part = _ZONES.get((zone / "name").read_text().strip().partition("-")[0])
            if part is None:
                continue
            wraps_at = float((zone / "max_energy_range_uj").read_text()) / 1e6
            read = functools.partial(_read_zone, zone / "energy_uj")
            read()
        except PermissionError:
            missing.append(
                f"The counters of processors ({rapl}) can be read by root only; `sudo chmod -R a+r "
                f"{rapl}/intel-rapl/` makes them readable until the next restart."
            )
            break
        except (OSError, ValueError) as error:
            missing.append(f"The counter {zone.name} cannot be read ({error}).")
        else:
            found.append(Counter(zone.name, part, wraps_at, read))
    if not found and not missing:
        missing.append(
            f"There are no counters of processors (in {rapl}); virtual machines and systems other "
            "than Linux have none."
        )
    return found, missing


def _read_zone(path: Path) -> float:
    return float(path.read_text()) / 1e6


def _gpu(index: int) -> Counter:
    import pynvml

    pynvml.nvmlInit()
    # NVML and CUDA may number the GPUs differently.
    uuid = f"GPU-{torch.cuda.get_device_properties(index).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read() -> float:
        try:
            return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error

    read()
    return Counter(uuid, "gpus", None, read)
