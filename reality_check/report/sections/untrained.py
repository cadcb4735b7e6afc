"""Raw input and untrained networks, and which methods score above them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.sections.blocks import Bullets, Section
from reality_check.report.summary import Summary
from reality_check.report.wording import listed, percent
from reality_check.statistics import Estimate, estimate_difference, over_searches

#: Of more methods, all are not named one by one.
_MOST_NAMED = 5

#: The baseline that the networks of the methods start from.
UNTRAINED_NETWORK = "untrained embedder"

#: The category whose networks are alike trained and untrained.
CATEGORY = "aggregate"


@dataclass(frozen=True)
class Untrained:
    """One baseline, and the methods that are not shown to be better than it on MAP@R.

    Attributes:
        name: of the baseline.
        mean: its MAP@R, 0..1.
        n: how many networks it is the mean of; raw pixels are one.
        unbeaten: by those methods, in the experiment's order.
    """

    name: str
    mean: float
    n: int
    unbeaten: tuple[str, ...]


def untrained(summary: Summary) -> list[Untrained]:
    """Return the baselines of the aggregate, the best one first; none without any such method.

    A method is above one where the 95 % interval of the difference is above 0 (Welch's, of the
    mean for a baseline of one value; uncorrected), with a single run where that run is. Methods
    with a network of their own are left out: the baselines are of the experiment's network.
    """
    methods = {
        method: estimate
        for method, estimate in summary.estimates(CATEGORY).items()
        if not summary.results.settings_of(method).get("model")
    }
    if not methods:
        return []
    baselines = []
    for name, of_metric in summary.baselines.items():
        if there := [value for value in of_metric.get(PRIMARY, ()) if math.isfinite(value)]:
            unbeaten = tuple(m for m, own in methods.items() if not _is_above(own, there))
            baselines.append(Untrained(name, fmean(there), len(there), unbeaten))
    return sorted(baselines, key=lambda baseline: -baseline.mean)


def not_above_untrained(summary: Summary) -> tuple[str, ...]:
    """Return the methods that are not shown to be better than the untrained network."""
    baselines = {baseline.name: baseline.unbeaten for baseline in untrained(summary)}
    return baselines.get(UNTRAINED_NETWORK, ())


def _is_above(estimate: Estimate, baseline: Sequence[float]) -> bool:
    if len(baseline) == 1:
        return (estimate.mean if estimate.low is None else estimate.low) > baseline[0]
    difference = estimate_difference(estimate, over_searches([[value] for value in baseline]))
    return (difference.mean if difference.low is None else difference.low) > 0


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
    for baseline in baselines:
        who = "all methods are better"
        if baseline.unbeaten:
            verb = "is" if len(baseline.unbeaten) == 1 else "are"
            who = f"{_named(baseline, summary)} {verb} not better"
        sentences.append(f"{baseline.name}, {_score(baseline)} (n = {baseline.n}): {who}.")
    return [
        *sentences,
        "A method is better where the 95 % interval of the difference is above 0 (uncorrected; of "
        "those with the experiment's network).",
    ]


def untrained_sentence(summary: Summary) -> str:
    """Return one sentence on those not better than the best baseline; empty for none."""
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
    methods = len(summary.methods)
    if _MOST_NAMED < methods == len(baseline.unbeaten):
        return f"all {methods} methods"
    return listed(baseline.unbeaten)
