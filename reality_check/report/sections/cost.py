"""What the comparison took: hours and energy by method, stage and device or part of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reality_check.config.metrics import STAGES, Stage
from reality_check.report.sections.blocks import Block, Note, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.text import NOTHING, hours_text, listed

#: Cost that belongs to no method.
BASELINES = Stage.BASELINES.value
_PARTS = {"gpus": "GPUs", "memory": "memory", "processors": "processors"}

_HOURS_NOTE = (
    "Hours of every process that trained (on GPUs: of every GPU), with scoring and with attempts "
    "that failed or lost their worker, counted up to their last heartbeat."
)
_ENERGY_NOTE = (
    "Energy by the machines' own counters (NVML of GPUs, RAPL of processors and their memory), "
    "read by each worker: all that these parts used while it was at work, other programs included. "
    "What several workers used at the same time is divided evenly among them. Power supplies, "
    "fans and disks are not in it. The worker hours say how much of the work was metered."
)


def cost_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` where no time was recorded."""
    costs = summary.results.costs
    if not costs:
        return None
    sentence = f"{hours_text(costs)} in all, over {sum(cost.attempts for cost in costs)} attempts."
    spent = [((one.method, one.device), one.stage, one.hours, one.attempts) for one in costs]
    table = _table(summary, "Hours of processes.", "Device", "Attempts", spent)
    blocks = (sentence, table, Note(_HOURS_NOTE), *_energy_blocks(summary))
    return Section("cost", "Cost", blocks)


def _energy_blocks(summary: Summary) -> list[Block]:
    energy, missing = summary.results.energy, summary.results.energy_missing
    if not energy:
        return [Note(" ".join(["Energy: not read.", *missing]))]
    watt_hours = sum(one.kilowatt_hours for one in energy) < 1
    unit, times = ("Wh", 1000.0) if watt_hours else ("kWh", 1.0)
    totals = _totals((one.part, one.kilowatt_hours * times) for one in energy)
    parts = listed([f"{totals[part]:.2f} {unit} of {_PARTS[part]}" for part in sorted(totals)])
    spent = [
        ((one.method, _PARTS[one.part]), one.stage, one.kilowatt_hours * times, float(one.hours))
        for one in energy
    ]
    table = _table(summary, f"Energy in {unit}.", "Part", "Worker hours", spent)
    return [f"Energy: {parts}.", table, Note(" ".join([_ENERGY_NOTE, *missing]))]


def _table(
    summary: Summary,
    caption: str,
    kind: str,
    last: str,
    spent: Sequence[tuple[tuple[str, str], str, float, float]],
) -> PlainTable:
    """Amounts by stage and in all; a row for each method and kind, those of no method at the end.

    Args:
        summary: the results.
        caption: of the table.
        kind: title of the kinds' column.
        last: title of the last column, a count or hours.
        spent: method and kind, stage, amount, and what is added up in the last column.
    """
    order = [method.name for method in summary.results.methods]
    rows = []
    for key in sorted(
        dict.fromkeys(k for k, *_ in spent), key=lambda k: (*order, k[0]).index(k[0])
    ):
        stages = _totals((stage, amount) for own, stage, amount, _ in spent if own == key)
        cells = [f"{stages[stage]:.2f}" if stage in stages else NOTHING for stage in STAGES]
        added = sum(one for own, *_, one in spent if own == key)
        end = f"{added:.2f}" if isinstance(added, float) else str(added)
        rows.append((key[0] or BASELINES, key[1], *cells, f"{sum(stages.values()):.2f}", end))
    header = ("Method", kind, "Search", "Reproductions", "Complete", "In all", last)
    return PlainTable(caption, header, tuple(rows), words=("Method", kind))


def _totals(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for key, value in values:
        totals[key] = totals.get(key, 0.0) + value
    return totals
