"""The YAML files that have names: those that ship with the package, and the user's own."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def configs_root() -> Path:
    """The folder of the YAML files that ship with the package."""
    installed = Path(str(importlib.resources.files("reality_check"))) / "configs"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "configs"


def config_files(group: str, beside: Path | None = None) -> dict[str, Path]:
    """All named YAML files of a group; the user's own win over those of the package."""
    files = dict(shipped_files(group))
    roots = [Path.cwd() / "configs"] + ([beside, beside / "configs"] if beside else [])
    for root in roots:
        if root.resolve() != configs_root().resolve():  # of a checkout, say
            files |= _yaml_files(root / group)
    return files


@cache
def shipped_files(group: str) -> Mapping[str, Path]:
    """The named YAML files of a group that ship with the package."""
    return _yaml_files(configs_root() / group)


def is_shipped(path: Path) -> bool:
    """Whether a file ships with the package, and so is the same as long as a process lives."""
    return path.is_relative_to(configs_root())


def paper_files() -> dict[str, Path]:
    """The experiments of the papers' tables by name, ``papers/PAPER/ITEM``.

    What they share lies in folders below.
    """
    files = config_files("papers")
    return {f"papers/{name}": path for name, path in files.items() if name.count("/") == 1}


def _yaml_files(folder: Path) -> dict[str, Path]:
    paths = sorted(folder.glob("**/*.yaml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
