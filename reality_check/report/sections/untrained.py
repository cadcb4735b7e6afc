"""The section on raw pixels and untrained networks: what every method starts from."""

from __future__ import annotations

from collections.abc import Iterable

from reality_check.config.metrics import METRICS, PRIMARY, is_fraction
from reality_check.report.sections.blocks import Block, Bullets, PlainTable, Section
from reality_check.report.statistics import t_interval
from reality_check.report.summary import Summary
from reality_check.report.text import NOTHING, interval_text, listed, percent
from reality_check.report.untrained import CATEGORY, Untrained, untrained


def baselines_section(summary: Summary) -> Section:
    """Return what every method starts from, and who is above it."""
    blocks: list[Block] = [baseline_table(summary)]
    if sentences := untrained_sentences(summary):
        blocks.append(Bullets(tuple(sentences)))
    return Section("baselines", "Baselines", tuple(blocks))


def baseline_table(summary: Summary) -> PlainTable:
    """Raw pixels and untrained networks: what every method starts from."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in summary.results.baselines:
        metrics = scores.setdefault((row.method, row.category), {})
        metrics.setdefault(row.metric, []).append(float(row.value))
    shown = METRICS | summary.final_metrics
    rows = tuple((*key, *_baseline_cells(metrics, shown)) for key, metrics in scores.items())
    header = ("Baseline", "Category", *shown.values(), "n")
    caption = "Without any training, in percent: mean ± half-width of the 95 % t-interval."
    return PlainTable(caption, header, rows, words=("Baseline", "Category"))


def _baseline_cells(metrics: dict[str, list[float]], shown: Iterable[str]) -> list[str]:
    cells = [
        interval_text(t_interval(metrics[m]), is_fraction(m)) if m in metrics else NOTHING
        for m in shown
    ]
    return [*cells, str(max(map(len, metrics.values())))]


def untrained_sentences(summary: Summary) -> list[str]:
    """Return a sentence for each baseline, the best one first, and one on how it was decided."""
    baselines = untrained(summary)
    if not baselines:
        return []
    return [
        *(f"{one.name}, {_score(one)} (n = {one.n}): {_who_is_better(one)}." for one in baselines),
        "A method is better where the 95 % interval of the difference is above 0 (uncorrected; of "
        "those with the experiment's network).",
    ]


def untrained_note(summary: Summary) -> str:
    """Return one sentence on those not better than the best baseline; empty for none."""
    best = next(iter(untrained(summary)), None)
    if best is None or not best.unbeaten:
        return ""
    return (
        f"Not better than raw pixels or the untrained network (best: {best.name}, {_score(best)} "
        f"in the {CATEGORY}): {listed(best.unbeaten)}."
    )


def _score(one: Untrained) -> str:
    return f"{percent(one.mean)} % {METRICS[PRIMARY]}"


def _who_is_better(one: Untrained) -> str:
    if not one.unbeaten:
        return "all methods are better"
    verb = "is" if len(one.unbeaten) == 1 else "are"
    return f"{listed(one.unbeaten)} {verb} not better"
