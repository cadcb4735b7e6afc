"""What the comparison took: hours and energy by method, stage and device or part of the machine."""

from __future__ import annotations

from collections.abc import Iterable

from reality_check.config.metrics import STAGES, Stage
from reality_check.report.sections.blocks import Block, Note, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.text import NOTHING, listed
from reality_check.results import Cost

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
    blocks = [sentence, _hours_table(summary), Note(_HOURS_NOTE), *_energy_blocks(summary)]
    return Section("cost", "Cost", tuple(blocks))


def hours_text(costs: Iterable[Cost]) -> str:
    """``"3.20 GPU hours and 0.15 hours of CPU processes"``; empty where nothing was recorded."""
    spent: dict[str, float] = {}
    for cost in costs:
        spent[cost.device] = spent.get(cost.device, 0.0) + cost.hours
    return listed([f"{hours:.2f} {_hours_of(kind)}" for kind, hours in sorted(spent.items())])


def _hours_of(device: str) -> str:
    """What the hours on a kind of device are hours of."""
    return {
        "cuda": "GPU hours",
        "cpu": "hours of CPU processes",
        "unknown": "hours of processes on a device that was not recorded",
    }.get(device, f"hours of processes on {device}")


def _hours_table(summary: Summary) -> PlainTable:
    costs = summary.results.costs
    rows = []
    for method, device in _keys(summary, ((cost.method, cost.device) for cost in costs)):
        own = [cost for cost in costs if (cost.method, cost.device) == (method, device)]
        hours = _by_stage((cost.stage, cost.hours) for cost in own)
        attempts = str(sum(cost.attempts for cost in own))
        rows.append((method or BASELINES, device, *hours, attempts))
    return PlainTable(
        "Hours of processes.",
        ("Method", "Device", "Search", "Reproductions", "Complete", "In all", "Attempts"),
        tuple(rows),
        words=("Method", "Device"),
    )


def _energy_blocks(summary: Summary) -> list[Block]:
    energy, missing = summary.results.energy, summary.results.energy_missing
    if not energy:
        return [Note(" ".join(["Energy: not read.", *missing]))]
    watt_hours = sum(one.kilowatt_hours for one in energy) < 1
    unit, times = ("Wh", 1000.0) if watt_hours else ("kWh", 1.0)
    totals = _totals((one.part, one.kilowatt_hours * times) for one in energy)
    parts = listed([f"{totals[part]:.2f} {unit} of {_PARTS[part]}" for part in sorted(totals)])
    note = " ".join([_ENERGY_NOTE, *missing])
    return [f"Energy: {parts}.", _energy_table(summary, unit, times), Note(note)]


def _energy_table(summary: Summary, unit: str, times: float) -> PlainTable:
    energy = summary.results.energy
    rows = []
    for method, part in _keys(summary, ((one.method, one.part) for one in energy)):
        own = [one for one in energy if (one.method, one.part) == (method, part)]
        used = _by_stage((one.stage, one.kilowatt_hours * times) for one in own)
        hours = f"{sum(one.hours for one in own):.2f}"
        rows.append((method or BASELINES, _PARTS[part], *used, hours))
    return PlainTable(
        f"Energy in {unit}.",
        ("Method", "Part", "Search", "Reproductions", "Complete", "In all", "Worker hours"),
        tuple(rows),
        words=("Method", "Part"),
    )


def _keys(summary: Summary, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each pair once, in the order of the methods; what belongs to none comes last."""
    order = [method.name for method in summary.results.methods]
    return sorted(dict.fromkeys(pairs), key=lambda pair: (*order, pair[0]).index(pair[0]))


def _totals(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for key, value in values:
        totals[key] = totals.get(key, 0.0) + value
    return totals


def _by_stage(values: Iterable[tuple[str, float]]) -> list[str]:
    """The total of each stage, then of all."""
    stages = _totals(values)
    own = [f"{stages[stage]:.2f}" if stage in stages else NOTHING for stage in STAGES]
    return [*own, f"{sum(stages.values()):.2f}"]
