"""Baselines (raw input and untrained networks), and which methods score above them."""

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

#: All methods together are named one by one only up to this number.
_MAX_NAMED = 5

#: The baseline of the networks from which the methods start.
UNTRAINED_NETWORK = "untrained embedder"

#: The category in which trained and untrained networks are scored alike.
CATEGORY = "aggregate"


@dataclass(frozen=True)
class Untrained:
    """A baseline, and the methods that are not shown to be better than it on MAP@R.

    Attributes:
        name: name of the baseline.
        mean: MAP@R of the baseline, from 0 to 1.
        n: number of networks averaged; 1 for raw pixels.
        unbeaten: the methods not shown to be better, in the order of the experiment.
    """

    name: str
    mean: float
    n: int
    unbeaten: tuple[str, ...]


def untrained(summary: Summary) -> list[Untrained]:
    """Return the baselines in the category "aggregate", the best one first.

    A method is better than a baseline if the uncorrected 95 % interval of their difference
    (Welch's, or the method's own for a baseline of one value) is above 0; without an interval, if
    the mean of the method is higher. Methods with networks of their own are left out, because the
    baselines are of the experiment's network; if no methods are left, the list is empty.
    """
    estimates = {
        method: estimate
        for method, estimate in summary.estimates(CATEGORY).items()
        if not summary.results.settings_of(method).get("model")
    }
    if not estimates:
        return []
    baselines = []
    for name, by_metric in summary.baselines.items():
        if values := [value for value in by_metric.get(PRIMARY, ()) if math.isfinite(value)]:
            unbeaten = tuple(m for m, e in estimates.items() if not _is_above(e, values))
            baselines.append(Untrained(name, fmean(values), len(values), unbeaten))
    return sorted(baselines, key=lambda baseline: -baseline.mean)


def not_above_untrained(summary: Summary) -> tuple[str, ...]:
    """Return the methods that are not shown to be better than the untrained network."""
    baselines = {baseline.name: baseline.unbeaten for baseline in untrained(summary)}
    return baselines.get(UNTRAINED_NETWORK, ())


def _is_above(estimate: Estimate, values: Sequence[float]) -> bool:
    """Whether a method is better than a baseline of these values, as :func:`untrained` says."""
    if len(values) == 1:
        return (estimate.mean if estimate.low is None else estimate.low) > values[0]
    # Each untrained network counts as a search of its own.
    difference = estimate_difference(estimate, over_searches([[value] for value in values]))
    return (difference.mean if difference.low is None else difference.low) > 0


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
