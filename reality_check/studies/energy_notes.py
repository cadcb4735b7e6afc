"""The notes of the counters of energy: what workers write, and the report reads.

Each worker has a file of JSON lines in ``logs/energy/``. The first one names the ``machine``, the
``counters`` (of each its ``part`` of the machine and where it ``wraps_at``), and why others are
``missing``. Each further one has the ``time`` (of a clock that all processes of a machine share),
the ``joules`` of each counter, and the ``work`` that begins then: method and stage, or none.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reality_check.utils.own_names import own_path

#: Seconds between two notes. Processors' counters wrap after three minutes at the earliest.
PERIOD = 30.0


def notes_folder(out_dir: Path) -> Path:
    """Where the workers of an experiment note what the counters say."""
    return own_path(out_dir, "logs/energy")


def read_notes(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; not those that a full disk or a killed worker cut off."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            note = json.loads(line)
            if isinstance(note, dict):
                yield note
