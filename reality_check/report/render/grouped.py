"""The report of output folders whose numbers cannot be compared: side by side, never in one table.

``report.html`` and ``report.md`` show what differs and each group's tables; the whole report of
each group is in ``group_1/``, ``group_2/``, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reality_check.config.differences import value_at
from reality_check.report.figures.overview import DrawnFigure
from reality_check.report.render._elements import Html, element
from reality_check.report.render._html_blocks import Part, figure, part
from reality_check.report.render._html_tables import plain
from reality_check.report.render.html import (
    box_content,
    comparison_grid,
    legend_note,
    overview_content,
    page,
)
from reality_check.report.render.markdown import escape, markdown_table, plain_table
from reality_check.report.sections.folders import folder_table
from reality_check.report.sections.overview import PlainTable
from reality_check.report.sections.verdict import headline
from reality_check.report.summary import Summary
from reality_check.report.tables import comparison_tables
from reality_check.report.text import NOTHING, counted, listed
from reality_check.results import Folder

#: More differing settings than this are only counted.
_MOST_KEYS = 40


@dataclass(frozen=True)
class Group:
    """Folders whose results stand in one table.

    Attributes:
        summary: their results.
        folders: where they come from.
        intervals: the figure of their intervals; ``None`` without results.
    """

    summary: Summary
    folders: tuple[Folder, ...]
    intervals: DrawnFigure | None

    @property
    def title(self) -> str:
        """The labels of its folders."""
        return listed([folder.label for folder in self.folders])


def grouped_html(groups: Sequence[Group], keys: Sequence[str]) -> str:
    """Return the page.

    Args:
        groups: at least two.
        keys: the dotted names of the settings in which they differ.
    """
    parts = [
        part("overview", "Overview", *(element("p", line) for line in sentences(groups))),
        part("folders", "Output folders", plain(_folders(groups))),
        part("differences", "What differs", plain(differences_table(groups, keys))),
        *(_group(number, group) for number, group in enumerate(groups, 1)),
    ]
    return page(_title(groups), parts)


def grouped_md(groups: Sequence[Group], keys: Sequence[str]) -> str:
    """Return the same as Markdown, with links to the whole reports."""
    blocks = [f"# {escape(_title(groups))}", *map(escape, sentences(groups))]
    blocks += ["## Output folders", plain_table(_folders(groups))]
    blocks += ["## What differs", plain_table(differences_table(groups, keys))]
    for number, group in enumerate(groups, 1):
        blocks += [
            f"## Group {number}: {escape(group.title)}",
            f"**{escape(headline(group.summary))}**",
            f"The whole report, with what deviates from the protocol: [group_{number}/report.md]"
            f"(group_{number}/report.md).",
        ]
        for table in comparison_tables(group.summary):
            blocks += [f"### {escape(table.category)}", markdown_table(table)]
    return "\n\n".join(blocks) + "\n"


def sentences(groups: Sequence[Group]) -> list[str]:
    """Say that the numbers of different groups must not be compared, and of what kind they are."""
    folders = sum(len(group.folders) for group in groups)
    return [
        f"{counted(folders, 'folder')} in {len(groups)} groups. The groups differ in data set, "
        "split, network or protocol, so their numbers are not comparable: a method with a higher "
        "number in another group is not better. Nothing here ranks methods across groups.",
        "What may be looked at across groups is the order of the methods that they share, one "
        "group at a time.",
    ]


def differences_table(groups: Sequence[Group], keys: Sequence[str]) -> PlainTable:
    """Return the settings in which any two groups differ, a column for each group."""
    header = ("Setting", *(f"Group {number}" for number in range(1, len(groups) + 1)))
    rows = [
        (key, *(_value(group.summary.results.config, key) for group in groups))
        for key in keys[:_MOST_KEYS]
    ]
    more = len(keys) - _MOST_KEYS
    caption = "Settings that differ" + (f"; {more} more are left out." if more > 0 else ".")
    return PlainTable(caption, header, tuple(rows), words=header)


def _value(config: Mapping[str, Any], dotted: str) -> str:
    value = value_at(config, dotted, NOTHING)
    text = "none" if value is None else str(value)
    longest = 12 if dotted.startswith("code.") else 60  # fingerprints are told by their beginning
    return text if len(text) <= longest else f"{text[:longest]}…"


def _title(groups: Sequence[Group]) -> str:
    return " | ".join(group.summary.results.name for group in groups)


def _folders(groups: Sequence[Group]) -> PlainTable:
    folders = [folder for group in groups for folder in group.folders]
    numbers = [str(number) for number, group in enumerate(groups, 1) for _ in group.folders]
    return folder_table(folders, numbers)


def _group(number: int, group: Group) -> Part:
    kind, content = box_content(group.summary)
    box = element("div", element("h3", "What deviates from the protocol"), *content, class_=kind)
    path = f"group_{number}/report.html"
    tables: list[Html] = []
    if group.summary.results.rows:
        grid = comparison_grid(group.summary, comparison_tables(group.summary))
        tables = [element("h3", "Comparison"), grid, legend_note()]
    return part(
        f"group-{number}",
        f"Group {number}: {group.title}",
        element("p", "The whole report: ", element("a", path, href=path)),
        *overview_content(group.summary),
        box,
        *tables,
        *([figure(group.intervals, f"g{number}-")] if group.intervals else []),
    )
