"""Reserved names: files of an output folder, which no method can be called."""

from __future__ import annotations

import re
from pathlib import Path

#: The files and folders of a run, its report and its trackers, and the names Windows reserves.
RESERVED = re.compile(
    r"(experiment|suite)\.yaml|(steps|slurm|jobs|merged_from|summary)\.json|test_queries\.npz|logs|sources|storage"
    r"|(results|trials|baselines|comparisons)\.csv|tables\.tex|references\.bib|report\.(md|html)"
    r"|figures|(studies|records)\.db(-journal)?|tensorboard|trackers|wandb"
    r"|(con|prn|aux|nul|(com|lpt)[1-9])(\..*)?",
    re.IGNORECASE,
)


def own_path(out_dir: Path, name: str) -> Path:
    """Return the path of a reserved file or folder, or of a file in it."""
    assert RESERVED.fullmatch(name.partition("/")[0]), f"{name} is to be added to RESERVED"
    return out_dir / name
