"""The YAML files that have names: those that ship with the package, and the user's own."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def configs_root() -> Path:
    """Return the folder of the YAML files that ship with the package."""
    installed = Path(str(importlib.resources.files("reality_check"))) / "configs"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "configs"


def config_files(group: str, beside: Path | None = None) -> dict[str, Path]:
    """Return all named YAML files of a group, from name to path.

    Those in ``./configs``, in ``beside`` and in ``beside/configs`` override those of the package,
    and the later of these folders the earlier.
    """
    files = dict(shipped_files(group))
    roots = [Path.cwd() / "configs"] + ([beside, beside / "configs"] if beside else [])
    for root in roots:
        if root.resolve() != configs_root().resolve():  # equal in a checkout of this package
            files |= _yaml_files(root / group)
    return files


@cache
def shipped_files(group: str) -> Mapping[str, Path]:
    """Return the named YAML files of a group that ship with the package."""
    return _yaml_files(configs_root() / group)


def is_shipped(path: Path) -> bool:
    """Return whether a file ships with the package, and so does not change during a process."""
    return path.is_relative_to(configs_root())


def paper_files() -> dict[str, Path]:
    """Return the experiments of the papers' tables by name, ``papers/PAPER/ITEM``.

    Files in deeper folders are shared parts, and left out.
    """
    files = config_files("papers")
    return {f"papers/{name}": path for name, path in files.items() if name.count("/") == 1}


def _yaml_files(folder: Path) -> dict[str, Path]:
    paths = sorted(folder.glob("**/*.yaml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
