"""Where the methods come from, in a report of several output folders."""

from __future__ import annotations

from collections.abc import Iterable

from reality_check.report.sections.blocks import PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.results import Folder

_SENTENCE = (
    "Same data set, split, network and protocol, so all methods are in one table. Methods that "
    "several folders have carry their folder in their name."
)


def folders_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` in the report of a folder itself."""
    folders = summary.results.folders
    if not folders:
        return None
    words = (_SENTENCE,) if len(folders) > 1 else ()
    return Section("folders", "Output folders", (*words, folder_table(folders)))


def folder_table(folders: Iterable[Folder], groups: Iterable[str] | None = None) -> PlainTable:
    """Return a row for each folder.

    Args:
        folders: in their order.
        groups: for each the group it is in, where they are not comparable.
    """
    rows: list[tuple[str, ...]] = [
        (
            folder.label,
            folder.path,
            folder.experiment,
            ", ".join(folder.methods),
            "" if folder.seed is None else str(folder.seed),
            "finished" if folder.finished else "not finished",
        )
        for folder in folders
    ]
    header: tuple[str, ...] = ("Folder", "Path", "Experiment", "Methods", "Seed", "State")
    if groups is not None:
        header = (header[0], "Group", *header[1:])
        rows = [(row[0], group, *row[1:]) for row, group in zip(rows, groups, strict=True)]
    words = tuple(title for title in header if title != "Seed")
    return PlainTable("Which folder holds which methods.", header, tuple(rows), words)
