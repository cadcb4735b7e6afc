"""What deviates from the protocol, and what is not finished."""

from __future__ import annotations

from reality_check.config.metrics import STAGES, Stage
from reality_check.report.sections.blocks import (
    Alarming,
    Block,
    Bullets,
    Folded,
    Heading,
    Section,
    Strong,
)
from reality_check.report.summary import Basis, Summary, winner
from reality_check.report.text import counted, listed
from reality_check.results import Deviation, MethodResults

_QUICK_WORDS = ("quick", "reduced", "smoke", "debug", "tiny")


def deviations_section(summary: Summary) -> Section:
    """Return first what kind of protocol this is, then serious deviations; others are folded."""
    results = summary.results
    ordered = sorted(results.deviations, key=lambda deviation: not deviation.serious)
    lines = tuple(map(_line, ordered))
    serious = sum(deviation.serious for deviation in ordered)
    opening, missing = _opening(summary), progress_lines(summary)
    blocks: list[Block] = [opening] if opening else []
    if serious:
        blocks.append(Bullets(lines[:serious]))
    if further := lines[serious:]:
        title = counted(len(further), "further deviation" if serious else "deviation")
        blocks.append(Folded(title, (Bullets(further),), headed=False))
    if missing:
        blocks += [Heading("Not finished"), Bullets(tuple(missing))]
    kind = "clean"
    if lines or missing or results.protocol != results.reference:
        kind = "serious" if serious else "minor"
    return Section("box", "What deviates from the protocol", tuple(blocks), kind)


def _opening(summary: Summary) -> str:
    results = summary.results
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
    if summary.basis is Basis.SETTINGS:
        parts.append(
            "As published, each method was searched once: this compares the settings that were "
            "found and says nothing about losses."
        )
    if not results.deviations:
        so_far = "" if results.finished else " so far"
        parts.append(f"No deviations from {results.reference}{so_far}.")
    return " ".join(parts)


def _line(deviation: Deviation) -> tuple[str, ...]:
    """A topic that its own sentence begins with is not said twice."""
    topic, text = deviation.topic, deviation.text
    own = text.startswith(f"{topic} ")
    lead, rest = (topic, text[len(topic) :]) if own else (f"{topic}:", f" {text}")
    return (Alarming(f"Serious – {lead}") if deviation.serious else Strong(lead)), rest


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
