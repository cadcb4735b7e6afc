"""The section on raw input and untrained networks: what every method starts from."""

from __future__ import annotations

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.sections.blocks import Bullets, Section
from reality_check.report.summary import Summary
from reality_check.report.text import listed, percent
from reality_check.report.untrained import CATEGORY, Untrained, untrained

#: Of more methods, all are not named one by one.
_MOST_NAMED = 5


def baselines_section(summary: Summary) -> Section | None:
    """Return who is above what every method starts from; the comparison has the numbers."""
    sentences = untrained_sentences(summary)
    return Section("baselines", "Baselines", (Bullets(tuple(sentences)),)) if sentences else None


def untrained_sentences(summary: Summary) -> list[str]:
    """Return a sentence for each baseline, the best one first, and one on how it was decided."""
    baselines = untrained(summary)
    if not baselines:
        return []
    sentences = []
    for one in baselines:
        who = "all methods are better"
        if one.unbeaten:
            verb = "is" if len(one.unbeaten) == 1 else "are"
            who = f"{_named(one, summary)} {verb} not better"
        sentences.append(f"{one.name}, {_score(one)} (n = {one.n}): {who}.")
    return [
        *sentences,
        "A method is better where the 95 % interval of the difference is above 0 (uncorrected; of "
        "those with the experiment's network).",
    ]


def untrained_note(summary: Summary) -> str:
    """Return one sentence on those not better than the best baseline; empty for none."""
    best = next(iter(untrained(summary)), None)
    if best is None or not best.unbeaten:
        return ""
    return (
        f"Not better than raw input or the untrained network (best: {best.name}, {_score(best)} "
        f"in the {CATEGORY}): {_named(best, summary)}."
    )


def _score(one: Untrained) -> str:
    return f"{percent(one.mean)} % {METRICS[PRIMARY]}"


def _named(one: Untrained, summary: Summary) -> str:
    methods = len(summary.methods)
    if _MOST_NAMED < methods == len(one.unbeaten):
        return f"all {methods} methods"
    return listed(one.unbeaten)
