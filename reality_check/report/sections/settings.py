"""The settings of the run, and the commands that repeat it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from reality_check.config.yaml_text import dump_yaml
from reality_check.report.sections.blocks import Code, Folded, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.results import Folder


def settings_section(summary: Summary) -> Section:
    """Return the section with the facts of the run and the resolved experiment as YAML."""
    results, header = summary.results, ("What", "Value")
    rows = (("Experiment", results.name), ("Protocol", results.protocol), *results.facts)
    table = PlainTable("Settings and circumstances.", header, rows, words=header)
    blocks = [Folded("Settings and circumstances", (table,), headed=False)]
    if results.config:
        title = "The resolved experiment (experiment.yaml)"
        if len(results.folders) > 1:
            title = "The settings that the folders have in common, and all methods"
        plain = json.loads(json.dumps(results.config, default=str))  # only what YAML can hold
        blocks.append(Folded(title, (Code(dump_yaml(plain), "yaml"),)))
    return Section("facts", "How it was run", tuple(blocks))


def reproduce_section(summary: Summary) -> Section:
    """Return the section with the commands that repeat the run, and where to call them."""
    folders, config = summary.results.folders, summary.results.config
    if not folders:
        # The storage of the run already has these results.
        storage = " storage=null" if config.get("storage") else ""
        name = config.get("name", "run")
        intro = "In the folder of this report, into a new one next to it:"
        commands = [f"reality-check run experiment.yaml{storage} --out ../{name}_again"]
        contents = (
            "experiment.yaml holds every setting and seed, and sources/, where there is one, the "
            "user's own code; nothing else of the folder is needed, and the data set (where it now "
            "lies elsewhere: dataset.path=...)"
        )
    elif len(folders) == 1:
        intro = "From the settings of the output folder:"
        commands = [_repeat_command(folders[0], "again")]
        contents = "The experiment.yaml of the output folder holds every setting and seed"
    else:
        intro = "Each folder from its own settings, then the report of all:"
        names = [f"again_{number}" for number in range(1, len(folders) + 1)]
        commands = list(map(_repeat_command, folders, names))
        commands.append(f"reality-check report {' '.join(names)} --out DIR")
        contents = "The experiment.yaml of each folder holds its settings and seed"
    more = (
        f"{contents}; results.csv holds every number at full precision; tables.tex and figures/ "
        "are ready for a paper."
    )
    return Section("again", "How to reproduce", (intro, Code("\n".join(commands), "sh"), more))


def _repeat_command(folder: Folder, name: str) -> str:
    """Return the command that repeats the run of an output folder or a pack, a zip file."""
    path, unzip = shlex.quote(folder.path), ""
    if Path(folder.path).is_file():
        unzip = f"unzip {path} -d {name}_given && "
        path = f"{name}_given"
    return f"{unzip}reality-check run {path}/experiment.yaml --out {name}"
