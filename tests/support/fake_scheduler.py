"""A scheduler of shell scripts, and the commands that speak to it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path


def install(folder: Path) -> dict[str, str]:
    """Copy the script into a folder, which becomes the queue; return the block ``command:``."""
    folder.mkdir()
    script = shutil.copy(Path(__file__).with_suffix(".sh"), folder)
    run = f"sh {shlex.quote(str(script))}"
    return {
        "submit": f"{run} submit {{log}} {{command}}",
        "number": "job (\\d+)",
        "state": f"{run} state {{job}}",
        "waiting": "waiting",
        "gone": "unknown",
        "end": f"{run} end {{job}}",
    }
