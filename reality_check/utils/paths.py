"""Paths as users write them, and the folder that decoded data is kept in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from reality_check.utils.errors import UsageError, at_home
from reality_check.utils.text import nearest


def expand_path(text: str | Path) -> Path:
    """Replace a leading ``~`` and every ``${VAR}`` of a path.

    Raises:
        UsageError: if a variable is not set.
    """

    def variable_value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise UsageError(
                f"The path {str(text)!r} uses the environment variable {name}, which is not set; "
                f"set it (export {name}=/a/folder) or write the whole path."
                + nearest(name, os.environ)
            )
        return os.environ[name]

    return at_home(re.sub(r"\$\{(\w+)\}", variable_value, str(text)))


def find_path(text: str | Path, *folders: Path | None) -> Path:
    """Return the expanded path; if it does not exist, the first existing one in the folders."""
    candidates = [expand_path(text), *(folder / text for folder in folders if folder)]
    return next((candidate for candidate in candidates if candidate.exists()), candidates[0])


def cache_folder() -> Path:
    """Return the folder for data that can be made again; it need not exist yet.

    ``REALITY_CHECK_CACHE`` names it; else it is ``reality_check`` in ``XDG_CACHE_HOME``, or in
    ``~/.cache``.
    """
    if named := os.environ.get("REALITY_CHECK_CACHE"):
        return at_home(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "reality_check"
