"""What lies in an output folder beside the folders of methods: names that none can have."""

from __future__ import annotations

from pathlib import Path

#: All files and folders, some of them written by libraries, that are not a method's.
OWN_NAMES = {
    "experiment.yaml",
    "steps.json",
    "slurm.json",
    "merged_from.json",
    "test_queries.npz",
    "logs",
    "sources",
    "figures",
    "results.csv",
    "trials.csv",
    "baselines.csv",
    "comparisons.csv",
    "summary.json",
    "tables.tex",
    "references.bib",
    "report.md",
    "report.html",
    "studies.db",
    "studies.db-journal",
    "records.db",
    "records.db-journal",
    "tensorboard",
    "trackers",
    "wandb",
}


def own_path(out_dir: Path, name: str) -> Path:
    """The path of one of these, or of a file below one."""
    assert name.partition("/")[0] in OWN_NAMES, f"{name} is to be added to OWN_NAMES"
    return out_dir / name
