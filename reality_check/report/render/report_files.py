"""Which files of a folder are a report's own, so that the next report leaves none of them behind.

A report of several output folders has one of two forms: one table, or groups with a folder each. A
``results.csv`` of the one beside the pages of the other would be taken for part of it.
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
#: Names of figures; the longer ones end in a metric or a method.
_FIGURE = re.compile(
    r"(differences|expected_best|tuning_budget"
    r"|(intervals|method|gallery)_.+)\.(png|pdf|svg)"
)
_GROUP = re.compile(r"group_[1-9][0-9]*")


def remove_report(folder: Path) -> None:
    """Delete the report of either form that is in a folder, and the folders that are empty then.

    Nothing in an output folder: its report has one form, and whatever else is there are records and
    what their owner put beside them.
    """
    if _is_output_folder(folder):
        return
    groups = [path for path in folder.glob("group_*") if _GROUP.fullmatch(path.name)]
    for path in (path for part in (folder, *groups) for path in _own(part)):
        path.unlink()
    for emptied in (folder / "figures", *(group / "figures" for group in groups), *groups):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def _own(folder: Path) -> list[Path]:
    """Return the files of one whole report; ``summary.json`` shows that there was one."""
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
    """Make sure that no experiment was run in folders where reports are to be written.

    Raises:
        UsageError: one was.
    """
    for folder in filter(_is_output_folder, folders):
        raise UsageError(
            f"{folder} is the output folder of an experiment, whose own report would be "
            "overwritten; name another folder for the report of several with --out."
        )
