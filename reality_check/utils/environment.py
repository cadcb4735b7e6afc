"""What an experiment ran with: versions and machine, for the records."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("torch", "pytorch-metric-learning", "optuna", "numpy", "faiss-cpu", "pml-extensions")


def describe_environment() -> dict[str, str]:
    """Versions of Python and of the packages that decide results, and the machine."""
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


def split_versions(text: str) -> dict[str, str]:
    """By name what :func:`describe_environment` says of versions: ``{"Python": "3.11.7", ...}``."""
    pairs = (entry.rpartition(" ") for entry in text.split(", ") if " " in entry)
    return {name: number for name, _, number in pairs}
