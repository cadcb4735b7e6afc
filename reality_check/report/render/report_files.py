"""Removal of the files of an earlier report before a report is written.

A report of several output folders has one of two forms: one data set, or several. If files of one
form were left behind, they would be taken for part of a report of the other form.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

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
    r"(differences|tuning_budget"
    r"|(intervals|method|gallery|forest)_.+)\.(png|pdf|svg)"
)


def remove_report(folder: Path) -> None:
    """Delete the report in a folder.

    Nothing is deleted from an output folder: its report has only one form, and its other files are
    records and files of the user.
    """
    if _is_output_folder(folder):
        return
    for path in _report_files(folder):
        path.unlink()
    with contextlib.suppress(OSError):  # it has files of the user, or is not there
        (folder / "figures").rmdir()


def _report_files(folder: Path) -> list[Path]:
    """Return the files of a report in a folder; it has one if there is a ``summary.json``."""
    summary = folder / "summary.json"
    if _is_output_folder(folder) or not summary.is_file():
        return []
    if b'"schema": "reality-check-s' not in summary.read_bytes()[:200]:  # summary or suite
        return []
    drawn = (path for path in (folder / "figures").glob("*") if _FIGURE.fullmatch(path.name))
    named = (folder / name for name in _FILES)
    return [path for path in (*named, *drawn) if path.is_file()]


def _is_output_folder(folder: Path) -> bool:
    return (folder / "experiment.yaml").exists() or (folder / "suite.yaml").exists()
