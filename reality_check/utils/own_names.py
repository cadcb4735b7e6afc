"""What lies in an output folder beside the folders of methods: names that none can have."""

from __future__ import annotations

import re
from pathlib import Path

#: The files and folders of a run, of its report and of trackers; and what Windows keeps for itself.
RESERVED = re.compile(
    r"experiment\.yaml|(steps|slurm|merged_from|summary)\.json|test_queries\.npz|logs|sources"
    r"|(results|trials|baselines|comparisons)\.csv|tables\.tex|references\.bib|report\.(md|html)"
    r"|figures|(studies|records)\.db(-journal)?|tensorboard|trackers|wandb"
    r"|(con|prn|aux|nul|(com|lpt)[1-9])(\..*)?",
    re.IGNORECASE,
)


def own_path(out_dir: Path, name: str) -> Path:
    """The path of one of these, or of a file below one."""
    assert RESERVED.fullmatch(name.partition("/")[0]), f"{name} is to be added to RESERVED"
    return out_dir / name
