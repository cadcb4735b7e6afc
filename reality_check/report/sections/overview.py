"""The report's further tables and sentences as plain text, for Markdown and HTML alike."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reality_check.config.metrics import METRICS, PRIMARY, STAGES, Stage, is_fraction, stage_of
from reality_check.config.yaml_text import dump_yaml
from reality_check.report.statistics import t_interval
from reality_check.report.summary import (
    Progress,
    Summary,
    records_of,
    winner,
)
from reality_check.report.text import (
    NOTHING,
    counted,
    duration,
    interval_text,
    listed,
    parameter,
    percent,
)
from reality_check.results import Cost, Folder, MethodResults, TrialRecord

#: The command that makes the same run again, beside ``experiment.yaml``.
COMMAND = "reality-check run experiment.yaml"

_QUICK_WORDS = ("quick", "reduced", "smoke", "debug", "tiny")


@dataclass(frozen=True)
class PlainTable:
    """A table of texts; the columns named in ``words`` hold words, the others numbers."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ("Method",)


@dataclass(frozen=True)
class Box:
    """What deviates from the protocol: an opening line and (serious, lead, rest) entries.

    An entry reads ``lead + " " + rest``; the lead is printed bold.
    """

    opening: str
    entries: tuple[tuple[bool, str, str], ...]


def reproduce_lines(summary: Summary) -> tuple[str, list[str], str]:
    """Where to stand, the commands that make the same again, and what else there is."""
    folders = summary.results.folders
    files = (
        "results.csv holds every number at full precision; tables.tex and figures/ are ready for "
        "a paper."
    )
    if not folders:
        kept = f"experiment.yaml holds every setting and seed; {files}"
        return "In the folder of this report:", [COMMAND], kept
    if len(folders) == 1:
        kept = f"The experiment.yaml of the output folder holds every setting and seed; {files}"
        return "From the settings of the output folder:", [_again(folders[0], "again")], kept
    names = [f"again_{number}" for number in range(1, len(folders) + 1)]
    runs = [_again(folder, name) for folder, name in zip(folders, names, strict=True)]
    return (
        "Each folder from its own settings, then the report of all:",
        [*runs, f"reality-check report {' '.join(names)} --out DIR"],
        f"The experiment.yaml of each folder holds its settings and seed; {files}",
    )


def _again(folder: Folder, name: str) -> str:
    """The command that makes the run of a folder again."""
    return f"reality-check run {shlex.quote(folder.path)}/experiment.yaml --out {name}"


def overview_facts(summary: Summary) -> list[tuple[str, str]]:
    """What was compared and how, in a few lines, for the top of the page."""
    results = summary.results
    known = dict(results.facts)
    done = {
        method.name: {stage: summary.progress(method, stage).done for stage in STAGES}
        for method in results.methods
    }
    runs = [stages[Stage.REPRODUCTIONS] or stages[Stage.FINAL] for stages in done.values()]
    trials = [done[method.name][Stage.SEARCH] for method in results.methods if method.searched]
    lines = [
        ("Data set", known.get("Data set", "")),
        ("Classes", known.get("Classes", "")),
        ("Protocol", f"{results.protocol}, measured against {results.reference}"),
        ("Methods", str(len(summary.methods))),
        ("Output folders", str(len(results.folders)) if len(results.folders) > 1 else ""),
        ("Search", f"{_span(trials)} trials per method" if any(trials) else ""),
        ("Reproductions", f"{_span(runs)} per method" if any(runs) else ""),
        ("Cost", hours_text(results.costs)),
        ("State", "finished" if results.finished else "not finished"),
    ]
    return [(name, text) for name, text in lines if text]


def _span(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def hours_text(costs: Iterable[Cost]) -> str:
    """``"3.20 GPU hours and 0.15 hours of CPU processes"``; empty where nothing was recorded."""
    spent: dict[str, float] = {}
    for cost in costs:
        spent[cost.device] = spent.get(cost.device, 0.0) + cost.hours
    return listed([f"{hours:.2f} {hours_of(kind)}" for kind, hours in sorted(spent.items())])


def hours_of(device: str) -> str:
    """What the hours on a kind of device are hours of."""
    return {
        "cuda": "GPU hours",
        "cpu": "hours of CPU processes",
        "unknown": "hours of processes on a device that was not recorded",
    }.get(device, f"hours of processes on {device}")


def deviation_box(summary: Summary) -> Box:
    """The box at the top: first what kind of protocol this is, then deviations, serious first."""
    results = summary.results
    ordered = sorted(results.deviations, key=lambda deviation: not deviation.serious)
    entries = tuple((d.serious, *_lead(d.topic, d.text)) for d in ordered)
    parts = []
    if any(word in results.protocol.lower() for word in _QUICK_WORDS):
        parts.append(
            f"The protocol “{results.protocol}” is a reduced one, for trying things out: these "
            f"numbers cannot be compared with published “{results.reference}” results."
        )
    elif results.protocol != results.reference:
        parts.append(
            f"The protocol is “{results.protocol}”, measured here against “{results.reference}”."
        )
    if not entries:
        none = "None" if results.finished else "None so far"
        parts.append(f"{none}: this run follows {results.reference} to the letter.")
    return Box(" ".join(parts), entries)


def _lead(topic: str, text: str) -> tuple[str, str]:
    """A topic that its own sentence begins with is not said twice."""
    if text.startswith(f"{topic} "):
        return topic, text[len(topic) + 1 :]
    return f"{topic}:", text


def progress_lines(summary: Summary) -> list[str]:
    """What is still missing, methods with the same gap together; empty for a finished run."""
    gaps: dict[str, list[str]] = {}
    for method in summary.results.methods:
        if missing := _missing(summary, method):
            gaps.setdefault(listed(missing), []).append(method.name)
    lines = []
    for gap, names in gaps.items():
        everyone = 2 < len(names) == len(summary.results.methods)
        who = f"all {len(names)} methods" if everyone else listed(names)
        lines.append(f"{who}: {gap} so far{' each' if len(names) > 1 else ''}.")
    if not lines and not summary.results.finished:
        lines.append("Some stages of this experiment are not complete.")
    return lines


def _missing(summary: Summary, method: MethodResults) -> list[str]:
    words = ("search trials", "reproductions", "complete runs")
    progress = {stage: summary.progress(method, stage) for stage in STAGES}
    missing = [
        f"{progress[stage]} {word}"
        for stage, word in zip(STAGES, words, strict=True)
        if progress[stage].missing
    ]
    if method.search and not progress[Stage.SEARCH].missing and winner(method) is None:
        missing.append("no winner, as every trial diverged or failed")
    return missing


def budget_table(summary: Summary) -> PlainTable:
    """What each method was given: trials, runs, time, and workers lost on the way."""
    return PlainTable(
        "Budget: what each method was given.",
        (
            "Method",
            "Search trials",
            "Diverged",
            "Failed",
            "Reproductions",
            "Complete runs",
            "Training time",
            "Attempts",
            "Workers lost",
        ),
        tuple(_budget_row(summary, method) for method in summary.results.methods),
    )


def _budget_row(summary: Summary, method: MethodResults) -> tuple[str, ...]:
    records = records_of(method)
    search, runs, complete = (_planned(summary.progress(method, stage)) for stage in STAGES)
    times = [record.seconds for record in records if record.seconds is not None]
    attempts = sum(record.attempts for record in records)
    return (
        method.name,
        search if method.searched else f"{search} (nothing to search)",
        str(sum(record.diverged is not None for record in records)),
        str(sum(record.state == "failed" for record in records)),
        runs,
        complete,
        duration(sum(times)) if times else NOTHING,
        str(attempts) if records else NOTHING,
        str(sum(max(0, record.attempts - 1) for record in records)),
    )


def _planned(progress: Progress) -> str:
    return str(progress) if progress.done or progress.planned else NOTHING


def winner_table(summary: Summary) -> PlainTable:
    """The trial of each method that was reproduced, with its hyper-parameters."""
    return PlainTable(
        "Winners of the searches: best validation MAP@R (mean over folds), and where each fold "
        "had its best epoch.",
        ("Method", "Loss", "Hyper-parameters", "Trial", "Validation MAP@R", "Best epochs"),
        tuple(_winner_row(method) for method in summary.results.methods),
        words=("Method", "Loss", "Hyper-parameters"),
    )


def _winner_row(method: MethodResults) -> tuple[str, ...]:
    geometry = "" if method.normalize_embeddings else " (embeddings not normalised)"
    best = winner(method)
    if best is None:
        why = "every trial diverged or failed" if method.search else "no trial yet"
        if not method.search and (method.final or not method.searched):
            why = "none searched"
        return (method.name, method.loss + geometry, why, NOTHING, NOTHING, NOTHING)
    return (
        method.name,
        method.loss + geometry,
        parameters_text(best.params) or "none searched",
        str(best.trial_index),
        percent(best.value),
        ", ".join(map(str, best.fold_epochs)) or NOTHING,
    )


def parameters_text(params: dict[str, Any]) -> str:
    """One line a parameter: ``"loss.scale = 23.2\nlearning_rates.loss = 1e-06"``."""
    return "\n".join(f"{name} = {parameter(value)}" for name, value in params.items())


def reproduction_table(summary: Summary) -> PlainTable:
    """One row per method, category and reproduction, with the run behind it."""
    rows = []
    for method in summary.methods:
        for category in summary.categories:
            numbers = {n for m in METRICS for n in summary.values.get((category, m, method), {})}
            rows += [_reproduction_row(summary, method, category, n) for n in sorted(numbers)]
    header = ("Method", "Category", "Run", *METRICS.values(), "Time", "Attempts", "Remarks")
    words = ("Method", "Category", "Remarks")
    return PlainTable("Metrics in percent, time per run.", header, tuple(rows), words)


def _reproduction_row(
    summary: Summary, method: str, category: str, reproduction: int
) -> tuple[str, ...]:
    record = _record(summary, method, category, reproduction)
    found = [summary.values.get((category, m, method), {}).get(reproduction) for m in METRICS]
    run = (NOTHING, NOTHING, "")
    if record is not None:
        remark = f"diverged: {record.diverged}" if record.diverged else ""
        run = (duration(record.seconds), str(record.attempts), remark)
    return (method, category, str(reproduction), *map(percent, found), *run)


def _record(summary: Summary, method: str, category: str, reproduction: int) -> TrialRecord | None:
    stage = stage_of(category)
    for entry in summary.results.methods:
        if entry.name == method:
            records: tuple[TrialRecord, ...] = getattr(entry, stage)
            return next((r for r in records if r.trial_index == reproduction), None)
    return None


def baseline_table(summary: Summary) -> PlainTable:
    """Raw pixels and untrained networks: what every method starts from."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in summary.results.baselines:
        metrics = found.setdefault((row.method, row.category), {})
        metrics.setdefault(row.metric, []).append(float(row.value))
    shown = METRICS | summary.final_metrics
    rows = tuple((*key, *_baseline_cells(metrics, shown)) for key, metrics in found.items())
    header = ("Baseline", "Category", *shown.values(), "n")
    caption = "Without any training, in percent: mean ± half-width of the 95 % t-interval."
    return PlainTable(caption, header, rows, words=("Baseline", "Category"))


def _baseline_cells(metrics: dict[str, list[float]], shown: Iterable[str]) -> list[str]:
    cells = [
        interval_text(t_interval(metrics[m]), is_fraction(m)) if m in metrics else NOTHING
        for m in shown
    ]
    return [*cells, str(max(map(len, metrics.values())))]


def facts_table(summary: Summary) -> PlainTable:
    """How it was run, as the campaign states it."""
    facts = (("Experiment", summary.results.name), ("Protocol", summary.results.protocol))
    rows = (*facts, *((key, value) for key, value in summary.results.facts))
    header = ("What", "Value")
    return PlainTable("Settings and circumstances.", header, rows, words=header)


def config_text(summary: Summary) -> str:
    """The resolved experiment as YAML."""
    plain = _plain(summary.results.config)
    return dump_yaml(plain) if plain else ""


def other_note(summary: Summary) -> str:
    """What the table of other metrics holds."""
    plain = "" if all(map(is_fraction, summary.final_metrics)) else " (separability: a ratio)"
    return (
        f"Asked for beside the protocol's three metrics, in percent{plain}; nothing was selected "
        "by them."
    )


def search_note(summary: Summary) -> str:
    """One sentence on the share of trials that diverged, for the search figure."""
    trials = [trial for method in summary.results.methods for trial in method.search]
    diverged = sum(trial.diverged is not None for trial in trials)
    return (
        f"{counted(len(trials), 'trial')}, {diverged} diverged (a diverged trial uses up budget "
        f"and counts as 0). Values are validation {METRICS[PRIMARY]}, mean over folds."
    )


def _plain(value: Any) -> Any:
    """Only what YAML can say; anything else as its text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
