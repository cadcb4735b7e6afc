"""The section on deviations from the protocol."""

from __future__ import annotations

from reality_check.report.sections.blocks import (
    Alarming,
    Block,
    Bullets,
    Folded,
    Section,
    Strong,
)
from reality_check.report.summary import Evidence, Summary
from reality_check.report.wording import counted
from reality_check.results import Deviation

#: Parts of the names of protocols for trying things out.
_QUICK_WORDS = ("quick", "reduced", "smoke", "debug", "tiny")


def deviations_section(summary: Summary) -> Section:
    """Return the section: the kind of protocol, serious deviations, and the others folded."""
    results = summary.results
    serious = tuple(_line(deviation) for deviation in results.deviations if deviation.serious)
    others = tuple(_line(deviation) for deviation in results.deviations if not deviation.serious)
    if not results.reference:  # trials that were made elsewhere
        return Section("box", "What this rests on", (Bullets((*serious, *others)),), "minor")
    opening = _opening(summary)
    blocks: list[Block] = [opening] if opening else []
    kind = "clean" if results.protocol == results.reference and not others else "minor"
    if serious:
        kind = "serious"
        blocks.append(Bullets(serious))
    if others:
        title = counted(len(others), "further deviation" if serious else "deviation")
        blocks.append(Folded(title, (Bullets(others),), headed=False))
    return Section("box", "What deviates from the protocol", tuple(blocks), kind)


def _opening(summary: Summary) -> str:
    """Return sentences on the protocol as a whole; empty if there are none."""
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
    if summary.evidence is Evidence.SETTINGS:
        parts.append(
            "As published, each method was searched once: this compares the settings that were "
            "found and says nothing about losses."
        )
    if not results.deviations:
        so_far = "" if results.finished else " so far"
        parts.append(f"No deviations from {results.reference}{so_far}.")
    return " ".join(parts)


def _line(deviation: Deviation) -> tuple[str, ...]:
    """Return the topic and the sentence, without repeating a topic that starts the sentence."""
    topic, text = deviation.topic, deviation.text
    opening, rest = f"{topic}:", f" {text}"
    if text.startswith(f"{topic} "):
        opening, rest = topic, text.removeprefix(topic)
    return Alarming(f"Serious – {opening}") if deviation.serious else Strong(opening), rest
