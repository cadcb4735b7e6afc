"""The verdict, and in a few lines what was compared, how."""

from __future__ import annotations

from reality_check.config.metrics import STAGES, Stage
from reality_check.report.sections.blocks import Block, Bullets, Facts, Section, Strong, Verdict
from reality_check.report.sections.cost import hours_text
from reality_check.report.sections.verdict import cautions, headline, leaders
from reality_check.report.summary import Summary
from reality_check.report.text import listed


def overview_section(summary: Summary) -> Section:
    """Return the section."""
    facts = overview_facts(summary)
    return Section("overview", "Overview", (_verdict(summary), Facts(tuple(facts))))


def _verdict(summary: Summary) -> Verdict:
    """Who leads: in a sentence, or in a line for each of several."""
    where = leaders(summary)
    if len(where) < 2:
        return Verdict((headline(summary),))
    lines = tuple(
        (Strong(f"{listed(categories)}:"), f" {leader}") for leader, categories in where.items()
    )
    preliminary: list[Block] = [] if summary.results.finished else ["Preliminary:"]
    return Verdict((*preliminary, Bullets(lines), *cautions(summary)))


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
