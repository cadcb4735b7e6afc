"""How it was run, every reproduction, and the commands that make the same run again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from reality_check.config.metrics import METRICS, stage_of
from reality_check.config.yaml_text import dump_yaml
from reality_check.report.sections.blocks import Block, Code, Folded, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.text import NOTHING, percent
from reality_check.results import Folder, TrialRecord
from reality_check.utils.text import duration


def settings_section(summary: Summary) -> Section:
    """Return the facts of the run, and the resolved experiment as YAML."""
    results, header = summary.results, ("What", "Value")
    rows = (("Experiment", results.name), ("Protocol", results.protocol), *results.facts)
    table = PlainTable("Settings and circumstances.", header, rows, words=header)
    blocks: list[Block] = [Folded("Settings and circumstances", (table,), headed=False)]
    if results.config:
        title = "The resolved experiment (experiment.yaml)"
        if len(results.folders) > 1:
            title = "The settings that the folders have in common, and all methods"
        plain = json.loads(json.dumps(results.config, default=str))  # only what YAML can say
        blocks.append(Folded(title, (Code(dump_yaml(plain), "yaml"),)))
    return Section("facts", "How it was run", tuple(blocks))


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


def reproductions_section(summary: Summary) -> Section:
    rows = []
    for method in summary.methods:
        for category in summary.categories:
            numbers = {n for m in METRICS for n in summary.runs.get((category, m, method), {})}
            rows += [_reproduction_row(summary, method, category, n) for n in sorted(numbers)]
    first = ("Method", "Category", "Search", "Trial", "Run")
    header = (*first, *METRICS.values(), "Time", "Attempts", "Remarks")
    words = ("Method", "Category", "Remarks")
    table = PlainTable("Metrics in percent, time per run.", header, tuple(rows), words)
    shown = table if rows else "No reproduction has been scored yet."
    return Section("reproductions", "Every reproduction", (shown,))


def _reproduction_row(
    summary: Summary, method: str, category: str, reproduction: int
) -> tuple[str, ...]:
    entry = summary.records.get(method)
    runs: tuple[TrialRecord, ...] = getattr(entry, stage_of(category)) if entry else ()
    record = next((run for run in runs if run.trial_index == reproduction), None)
    values = [summary.runs.get((category, m, method), {}).get(reproduction) for m in METRICS]
    row = next(
        row
        for metric in METRICS
        for row in summary.rows.get((category, metric, method), [])
        if row.reproduction == reproduction
    )
    place = [NOTHING if number is None else str(number) for number in (row.search, row.trial)]
    last = (NOTHING, NOTHING, "")
    if record is not None:
        remark = f"diverged: {record.diverged}" if record.diverged else ""
        last = (duration(record.seconds), str(record.attempts), remark)
    return (method, category, *place, str(reproduction), *map(percent, values), *last)
