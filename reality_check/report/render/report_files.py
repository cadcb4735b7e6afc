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
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

_PAGES = ("report.html", "report.md")
_NUMBERS = (
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


class Files:
    """Writes files into a folder and remembers them.

    Args:
        folder: made where missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[Path] = set()

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file, whole or not at all."""
        atomic_write(own_path(self.folder, name), content)
        self.written.add(self.folder / name)


def files_of_report(folder: Path) -> set[Path]:
    """Return the files that a report of either form left in a folder.

    Nothing where there is none, and nothing in an output folder: its report has one form, and
    whatever else is there are records and what their owner put beside them.
    """
    groups = folder.iterdir() if folder.is_dir() and not _is_output_folder(folder) else ()
    return _own(folder).union(*(_own(group) for group in groups if _GROUP.fullmatch(group.name)))


def _own(folder: Path) -> set[Path]:
    """Return the files of one whole report; ``summary.json`` shows that there was one."""
    summary = folder / "summary.json"
    if _is_output_folder(folder) or not summary.is_file():
        return set()
    if b'"schema": "reality-check-summary"' not in summary.read_bytes()[:200]:
        return set()
    drawn = (path for path in (folder / "figures").glob("*") if _FIGURE.fullmatch(path.name))
    named = (folder / name for name in (*_PAGES, *_NUMBERS))
    return {path for path in (*named, *drawn) if path.is_file()}


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


def remove(files: Iterable[Path]) -> None:
    """Delete files, and the folders that are empty then."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in (path.parent, path.parent.parent):
            if _GROUP.fullmatch(folder.name) or folder.name == "figures":
                with contextlib.suppress(OSError):
                    folder.rmdir()
