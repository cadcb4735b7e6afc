"""The output folders of a report of several, and the blocks on a group of comparable ones."""

from __future__ import annotations

from collections.abc import Iterable

from reality_check.report.sections.blocks import (
    Block,
    Box,
    Heading,
    PlainTable,
    Section,
)
from reality_check.report.sections.deviation_list import deviations_section
from reality_check.report.sections.overview import overview_section
from reality_check.report.summary import Summary
from reality_check.results import Folder

_SENTENCE = (
    "Same data set, split, network and protocol, so all methods are in one table. Methods that "
    "several folders have carry their folder in their name."
)


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


def folder_table(folders: Iterable[Folder]) -> PlainTable:
    """Return the table of folders."""
    rows = [
        (
            folder.label,
            folder.experiment,
            ", ".join(folder.methods),
            "" if folder.seed is None else str(folder.seed),
            "finished" if folder.finished else "not finished",
        )
        for folder in folders
    ]
    header = ("Folder", "Experiment", "Methods", "Seed", "State")
    words = tuple(title for title in header if title != "Seed")
    return PlainTable("Which folder holds which methods.", header, tuple(rows), words)
