"""The cost of the comparison: hours by method, stage and device."""

from __future__ import annotations

from collections import Counter, defaultdict

from reality_check.config.metrics import STAGES, Stage
from reality_check.report.sections.blocks import Footnote, PlainTable, Section
from reality_check.report.summary import Summary
from reality_check.report.wording import NOTHING, hours_text

#: Name of the row of costs that belong to no method.
BASELINES = Stage.BASELINES.value

_FOOTNOTE = (
    "Hours of every process that trained (on GPUs: of every GPU), with scoring and with attempts "
    "that failed or lost their worker, counted up to their last heartbeat."
)


def cost_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` if no time was recorded."""
    costs = summary.results.costs
    if not costs:
        return None
    sentence = f"{hours_text(costs)} in all, over {sum(cost.attempts for cost in costs)} attempts."
    return Section("cost", "Cost", (sentence, _table(summary), Footnote(_FOOTNOTE)))


def _table(summary: Summary) -> PlainTable:
    """Return a table with a row for each method and device, baselines last."""
    hours: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    attempts = Counter[tuple[str, str]]()
    for cost in summary.results.costs:
        hours[cost.method, cost.device][cost.stage] += cost.hours
        attempts[cost.method, cost.device] += cost.attempts
    order = [method.name for method in summary.results.methods]
    rows = []
    # The baselines have no place in ``order``, and get the place after its end.
    for method, device in sorted(hours, key=lambda key: (*order, key[0]).index(key[0])):
        by_stage = hours[method, device]
        cells = [f"{by_stage[stage]:.2f}" if stage in by_stage else NOTHING for stage in STAGES]
        in_all = f"{sum(by_stage.values()):.2f}"
        rows.append((method or BASELINES, device, *cells, in_all, str(attempts[method, device])))
    header = ("Method", "Device", "Search", "Reproductions", "Complete", "In all", "Attempts")
    return PlainTable("Hours of processes.", header, tuple(rows), words=("Method", "Device"))
