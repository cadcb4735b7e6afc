"""Which methods score above the baselines: raw input and untrained networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from reality_check.config.metrics import PRIMARY
from reality_check.report.summary import Summary
from reality_check.statistics import Estimate, estimate_difference, over_searches

#: The baseline of the networks from which the methods start.
UNTRAINED_NETWORK = "untrained embedder"

#: The category in which trained and untrained networks are scored alike.
CATEGORY = "aggregate"

#: Keys of a method's own model that say what of the experiment's network is trained.
_TRAINED_PART = {"adapter", "frozen"}


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
    baselines are of the experiment's network, but not those that train another part of it; if no
    methods are left, the list is empty.
    """
    estimates = {
        method: estimate
        for method, estimate in summary.estimates(CATEGORY).items()
        if _TRAINED_PART.issuperset(summary.results.settings_of(method).get("model") or ())
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
