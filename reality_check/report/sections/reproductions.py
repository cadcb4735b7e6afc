"""Every reproduction: one row each, with the run behind it."""

from __future__ import annotations

from reality_check.config.metrics import METRICS, stage_of
from reality_check.report.sections.blocks import PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.text import NOTHING, percent
from reality_check.results import TrialRecord
from reality_check.utils.text import duration


def reproductions_section(summary: Summary) -> Section:
    """Return the section."""
    table = reproduction_table(summary)
    if not table.rows:
        none = "No reproduction has been scored yet."
        return Section("reproductions", "Every reproduction", (none,))
    return Section("reproductions", "Every reproduction", (table,))


def reproduction_table(summary: Summary) -> PlainTable:
    """One row per method, category and reproduction, with the run behind it."""
    rows = []
    for method in summary.methods:
        for category in summary.categories:
            numbers = {n for m in METRICS for n in summary.runs.get((category, m, method), {})}
            rows += [_reproduction_row(summary, method, category, n) for n in sorted(numbers)]
    header = (
        "Method",
        "Category",
        "Search",
        "Trial",
        "Run",
        *METRICS.values(),
        "Time",
        "Attempts",
        "Remarks",
    )
    words = ("Method", "Category", "Remarks")
    return PlainTable("Metrics in percent, time per run.", header, tuple(rows), words)


def _reproduction_row(
    summary: Summary, method: str, category: str, reproduction: int
) -> tuple[str, ...]:
    record = _record(summary, method, category, reproduction)
    values = [summary.runs.get((category, m, method), {}).get(reproduction) for m in METRICS]
    row = next(
        row
        for metric in METRICS
        for row in summary.rows.get((category, metric, method), [])
        if row.reproduction == reproduction
    )
    place = [NOTHING if number is None else str(number) for number in (row.search, row.trial)]
    run = (NOTHING, NOTHING, "")
    if record is not None:
        remark = f"diverged: {record.diverged}" if record.diverged else ""
        run = (duration(record.seconds), str(record.attempts), remark)
    return (method, category, *place, str(reproduction), *map(percent, values), *run)


def _record(summary: Summary, method: str, category: str, reproduction: int) -> TrialRecord | None:
    stage = stage_of(category)
    for entry in summary.results.methods:
        if entry.name == method:
            records: tuple[TrialRecord, ...] = getattr(entry, stage)
            return next((r for r in records if r.trial_index == reproduction), None)
    return None
