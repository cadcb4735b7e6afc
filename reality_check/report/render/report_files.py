"""Removal of the files of an earlier report before a report is written.

A report of several output folders has one of two forms: one table, or groups with a folder each. If
files of one form were left behind, they would be taken for part of a report of the other form.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from reality_check.utils.errors import UsageError

_FILES = (
    "report.html",
    "report.md",
    "results.csv",
    "trials.csv",
    "baselines.csv",
    "comparisons.csv",
    "summary.json",
    "tables.tex",
    "references.bib",
)
#: Names of figures, some of which end in the name of a metric or a method.
_FIGURE = re.compile(
    r"(differences|expected_best|tuning_budget"
    r"|(intervals|method|gallery)_.+)\.(png|pdf|svg)"
)
_GROUP = re.compile(r"group_[1-9][0-9]*")


def remove_report(folder: Path) -> None:
    """Delete the report in a folder, and the subfolders that this leaves empty.

    Nothing is deleted from an output folder: its report has only one form, and its other files are
    records and files of the user.
    """
    if _is_output_folder(folder):
        return
    groups = [path for path in folder.glob("group_*") if _GROUP.fullmatch(path.name)]
    for part in (folder, *groups):
        for path in _report_files(part):
            path.unlink()
    # What still has files of the user stays.
    for emptied in (folder / "figures", *(group / "figures" for group in groups), *groups):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def _report_files(folder: Path) -> list[Path]:
    """Return the files of a report in a folder; it has one if there is a ``summary.json``."""
    summary = folder / "summary.json"
    if _is_output_folder(folder) or not summary.is_file():
        return []
    if b'"schema": "reality-check-summary"' not in summary.read_bytes()[:200]:
        return []
    drawn = (path for path in (folder / "figures").glob("*") if _FIGURE.fullmatch(path.name))
    named = (folder / name for name in _FILES)
    return [path for path in (*named, *drawn) if path.is_file()]


def _is_output_folder(folder: Path) -> bool:
    return (folder / "experiment.yaml").exists()


def check_no_output_folder(folders: Iterable[Path]) -> None:
    """Check that no folder in which a report will be written is an output folder.

    Raises:
        UsageError: a folder is the output folder of an experiment.
    """
    for folder in filter(_is_output_folder, folders):
        raise UsageError(
            f"{folder} is the output folder of an experiment, whose own report would be "
            "overwritten; name another folder for the report of several with --out."
        )
