"""How it was run, and the commands that make the same run again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from reality_check.config.yaml_text import dump_yaml
from reality_check.report.sections.blocks import Block, Code, Folded, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.results import Folder


def settings_section(summary: Summary) -> Section:
    """Return the facts of the run, and the whole experiment."""
    return Section("facts", "How it was run", tuple(_details(summary)))


def facts_table(summary: Summary) -> PlainTable:
    """How it was run, as the campaign states it."""
    facts = (("Experiment", summary.results.name), ("Protocol", summary.results.protocol))
    rows = (*facts, *((key, value) for key, value in summary.results.facts))
    header = ("What", "Value")
    return PlainTable("Settings and circumstances.", header, rows, words=header)


def _details(summary: Summary) -> list[Block]:
    """The facts, and the resolved experiment as YAML."""
    facts = Folded("Settings and circumstances", (facts_table(summary),), headed=False)
    plain = _plain(summary.results.config)
    if not plain:
        return [facts]
    title = "The resolved experiment (experiment.yaml)"
    if len(summary.results.folders) > 1:
        title = "The settings that the folders have in common, and all methods"
    return [facts, Folded(title, (Code(dump_yaml(plain), "yaml"),))]


def _plain(value: Any) -> Any:
    """Only what YAML can say; anything else as its text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def reproduce_section(summary: Summary) -> Section:
    """Return where to stand, the commands that make the same again, and what else there is."""
    folders, config = summary.results.folders, summary.results.config
    if not folders:
        own = " storage=null" if config.get("storage") else ""
        name = config.get("name", "run")
        where = "In the folder of this report, into a new one next to it:"
        commands = [f"reality-check run experiment.yaml{own} --out ../{name}_again"]
        kept = (
            "experiment.yaml holds every setting and seed, and sources/, where there is one, the "
            "user's own code; nothing else of the folder is needed, and the data set (where it now "
            "lies elsewhere: dataset.path=...)"
        )
    elif len(folders) == 1:
        where, commands = "From the settings of the output folder:", [_again(folders[0], "again")]
        kept = "The experiment.yaml of the output folder holds every setting and seed"
    else:
        where = "Each folder from its own settings, then the report of all:"
        names = [f"again_{number}" for number in range(1, len(folders) + 1)]
        commands = [_again(folder, name) for folder, name in zip(folders, names, strict=True)]
        commands.append(f"reality-check report {' '.join(names)} --out DIR")
        kept = "The experiment.yaml of each folder holds its settings and seed"
    more = (
        f"{kept}; results.csv holds every number at full precision; tables.tex and figures/ are "
        "ready for a paper."
    )
    return Section("again", "How to reproduce", (where, Code("\n".join(commands), "sh"), more))


def _again(folder: Folder, name: str) -> str:
    """The command that makes the run of a folder again; a pack is a zip file."""
    if Path(folder.path).is_file():
        path = shlex.quote(folder.path)
        given = f"{name}_given"
        return f"unzip {path} -d {given} && reality-check run {given}/experiment.yaml --out {name}"
    return f"reality-check run {shlex.quote(folder.path)}/experiment.yaml --out {name}"
