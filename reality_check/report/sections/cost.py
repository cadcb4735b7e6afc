"""What the comparison took: hours of processes or GPUs by method, stage and device."""

from __future__ import annotations

from reality_check.report._sections import PlainTable, hours_text
from reality_check.report._summary import Summary
from reality_check.report._text import NOTHING
from reality_check.report.sections._section import Note, Section
from reality_check.results import STAGES, Cost

#: Cost that belongs to no method.
BASELINES = "baselines"

_NOTE = (
    "Hours of every process that trained (on GPUs: of every GPU), with scoring and with attempts "
    "that failed or lost their worker, those up to their last sign of life. Energy: not read. The "
    "counters of a machine are those of everything that runs on it, so they say nothing certain of "
    "single trainings."
)


def cost_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` where no time was recorded."""
    costs = summary.results.costs
    if not costs:
        return None
    sentence = f"{hours_text(costs)} in all, over {sum(cost.attempts for cost in costs)} attempts."
    return Section("cost", "Cost", "search", (sentence, _table(costs), Note(_NOTE)))


def _table(costs: tuple[Cost, ...]) -> PlainTable:
    rows: dict[tuple[str, str], dict[str, float]] = {}
    attempts: dict[tuple[str, str], int] = {}
    for cost in costs:
        key = (cost.method or BASELINES, cost.device)
        stages = rows.setdefault(key, {})
        stages[cost.stage] = stages.get(cost.stage, 0.0) + cost.hours
        attempts[key] = attempts.get(key, 0) + cost.attempts
    return PlainTable(
        "Hours of processes.",
        ("Method", "Device", "Search", "Reproductions", "Complete", "In all", "Attempts"),
        tuple((*key, *_hours(stages), str(attempts[key])) for key, stages in rows.items()),
        words=("Method", "Device"),
    )


def _hours(stages: dict[str, float]) -> list[str]:
    own = [f"{stages[stage]:.2f}" if stage in stages else NOTHING for stage in STAGES]
    return [*own, f"{sum(stages.values()):.2f}"]
