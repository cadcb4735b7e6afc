"""Sentences on the baselines, and on the methods that score above them."""

from __future__ import annotations

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.sections.blocks import Bullets, Section
from reality_check.report.summary import Summary
from reality_check.report.untrained import CATEGORY, Untrained, untrained
from reality_check.report.wording import listed, percent

#: All methods together are named one by one only up to this number.
_MAX_NAMED = 5


def baselines_section(summary: Summary) -> Section | None:
    """Return the section on which methods are better than the baselines, or ``None``."""
    sentences = untrained_sentences(summary)
    return Section("baselines", "Baselines", (Bullets(tuple(sentences)),)) if sentences else None


def untrained_sentences(summary: Summary) -> list[str]:
    """Return a sentence for each baseline, the best one first, and one on the criterion."""
    baselines = untrained(summary)
    if not baselines:
        return []
    sentences = []
    for baseline in baselines:
        result = "all methods are better"
        if baseline.unbeaten:
            verb = "is" if len(baseline.unbeaten) == 1 else "are"
            result = f"{_named(baseline, summary)} {verb} not better"
        sentences.append(f"{baseline.name}, {_score(baseline)} (n = {baseline.n}): {result}.")
    return [
        *sentences,
        "A method is better where the 95 % interval of the difference is above 0 (uncorrected; of "
        "those with the experiment's network).",
    ]


def untrained_sentence(summary: Summary) -> str:
    """Return a sentence on methods not better than the best baseline, or ``""`` for none."""
    best = next(iter(untrained(summary)), None)
    if best is None or not best.unbeaten:
        return ""
    return (
        f"Not better than raw input or the untrained network (best: {best.name}, {_score(best)} "
        f"in the {CATEGORY}): {_named(best, summary)}."
    )


def _score(baseline: Untrained) -> str:
    return f"{percent(baseline.mean)} % {METRICS[PRIMARY]}"


def _named(baseline: Untrained, summary: Summary) -> str:
    """Return the names of the methods that are not better than a baseline, or their number."""
    num_methods = len(summary.methods)
    # All methods, and too many to name them
    if _MAX_NAMED < num_methods == len(baseline.unbeaten):
        return f"all {num_methods} methods"
    return listed(baseline.unbeaten)
