"""The report of output folders whose numbers are not comparable and so never share a table.

``report.html`` and ``report.md`` show the differences between groups of comparable folders, and the
tables of each group. The whole report of each group is in ``group_1/``, ``group_2/``, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reality_check.config.differences import value_at
from reality_check.report.sections.blocks import (
    Block,
    Box,
    Heading,
    PlainTable,
    Section,
    WholeReport,
)
from reality_check.report.sections.deviation_list import deviations_section
from reality_check.report.sections.overview import overview_section
from reality_check.report.summary import Summary
from reality_check.report.wording import NOTHING, counted, listed
from reality_check.results import Folder

#: Differing settings beyond this number are only counted.
_MAX_KEYS = 40
_SENTENCE = (
    "Same data set, split, network and protocol, so all methods are in one table. Methods that "
    "several folders have carry their folder in their name."
)


def groups_sections(groups: Sequence[Summary], keys: Sequence[str]) -> list[Section]:
    """Return the sections of the report.

    Args:
        groups: the results of each group, at least two.
        keys: dotted keys of the settings in which groups differ.
    """
    numbered = [*enumerate(groups, 1)]
    folders = [folder for group in groups for folder in group.results.folders]
    # The group of each folder
    numbers = [str(number) for number, group in numbered for _ in group.results.folders]
    sentences = (
        f"{counted(len(folders), 'folder')} in {len(groups)} groups. The groups differ in data "
        "set, split, network or protocol, so their numbers are not comparable: a method with a "
        "higher number in another group is not better. Nothing here ranks methods across groups.",
        "What may be compared across groups is the order of the methods that they share, one "
        "group at a time.",
    )
    return [
        Section("overview", "Overview", sentences),
        Section("folders", "Output folders", (folder_table(folders, numbers),)),
        Section("differences", "What differs", (_differences_table(groups, keys),)),
        *(_section(number, group) for number, group in numbered),
    ]


def _differences_table(groups: Sequence[Summary], keys: Sequence[str]) -> PlainTable:
    """Return the table of the settings in which groups differ, with a column for each group."""
    header = ("Setting", *(f"Group {number}" for number, _ in enumerate(groups, 1)))
    rows = [
        (key, *(_value_text(group.results.config, key) for group in groups))
        for key in keys[:_MAX_KEYS]
    ]
    more = len(keys) - _MAX_KEYS
    left_out = f"; {more} more are left out" if more > 0 else ""
    return PlainTable(f"Settings that differ{left_out}.", header, tuple(rows), words=header)


def _value_text(config: Mapping[str, Any], dotted: str) -> str:
    """Return the value of a dotted key, shortened, or a dash if the key is not there."""
    value = value_at(config, dotted, NOTHING)
    text = "none" if value is None else str(value)
    longest = 12 if dotted.startswith("code.") else 60  # fingerprints differ at their start
    return text if len(text) <= longest else f"{text[:longest]}…"


def _section(number: int, group: Summary) -> Section:
    folder = f"group_{number}"
    blocks = (WholeReport(folder), *group_blocks(group, f"{folder}/"))
    title = listed([source.label for source in group.results.folders])
    return Section(f"group-{number}", f"Group {number}: {title}", blocks)


def group_blocks(summary: Summary, folder: str) -> tuple[Block, ...]:
    """Return the blocks on a group for a page of several groups: overview and deviations.

    Args:
        summary: summary of the group's results.
        folder: folder of the figure, see :class:`ReportFigure`.
    """
    deviations = deviations_section(summary)
    box = Box(deviations.kind, (Heading(deviations.heading), *deviations.blocks))
    return (*overview_section(summary, folder).blocks, box)


def folders_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` in the report that a run writes about itself."""
    folders = summary.results.folders
    if not folders:
        return None
    words = (_SENTENCE,) if len(folders) > 1 else ()
    return Section("folders", "Output folders", (*words, folder_table(folders)))


def folder_table(folders: Iterable[Folder], groups: Iterable[str] | None = None) -> PlainTable:
    """Return the table of folders.

    Args:
        folders: the folders in the order of rows.
        groups: group of each folder, or ``None`` if all are comparable.
    """
    rows: list[tuple[str, ...]] = [
        (
            folder.label,
            folder.experiment,
            ", ".join(folder.methods),
            "" if folder.seed is None else str(folder.seed),
            "finished" if folder.finished else "not finished",
        )
        for folder in folders
    ]
    header: tuple[str, ...] = ("Folder", "Experiment", "Methods", "Seed", "State")
    if groups is not None:  # They become the second column.
        header = (header[0], "Group", *header[1:])
        rows = [(row[0], group, *row[1:]) for row, group in zip(rows, groups, strict=True)]
    words = tuple(title for title in header if title != "Seed")
    return PlainTable("Which folder holds which methods.", header, tuple(rows), words)
