"""The software versions and the machine that an experiment ran with, for its records."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "pytorch-metric-learning", "optuna", "numpy", "faiss-cpu", "pml-extensions")
#: The file with the version of NVIDIA's driver on Linux.
_DRIVER = Path("/proc/driver/nvidia/version")


def describe_environment() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect results, and the machine."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def describe_gpu(device: torch.device, driver: Path = _DRIVER) -> str:
    """Describe a CUDA device in words: its name, driver and libraries."""
    import torch  # here, because importing it takes a second

    try:
        match = re.search(r"\b\d{3,}(\.\d+)+", driver.read_text())
    except OSError:
        match = None
    return ", ".join(
        (
            torch.cuda.get_device_name(device),
            f"driver {'unknown' if match is None else match[0]}",
            f"CUDA {torch.version.cuda}",
            f"cuDNN {torch.backends.cudnn.version()}",
        )
    )


def split_versions(text: str) -> dict[str, str]:
    """Parse the versions of :func:`describe_environment`: ``{"Python": "3.11.7", ...}``."""
    pairs = (entry.rpartition(" ") for entry in text.split(", ") if " " in entry)
    return {name: number for name, _, number in pairs}
