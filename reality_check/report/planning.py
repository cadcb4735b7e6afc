"""The smallest difference that a plan is expected to find, before anything is trained."""

from __future__ import annotations

import math
from statistics import fmean

from reality_check.config.metrics import METRICS, PRIMARY, Stage
from reality_check.config.protocol import Protocol
from reality_check.report.summary import Summary
from reality_check.report.wording import counted, points
from reality_check.results import ExperimentResults
from reality_check.statistics import (
    Shares,
    planned_error,
    planned_subsets_error,
    smallest_detectable,
    subset_degrees,
    welch_degrees,
)
from reality_check.utils.errors import UsageError

#: Variances of searches of ten trials and of trainings in ``docs/calibration.md``, averaged over
#: its three losses.
BANK = Shares(search=0.0080**2, training=0.0047**2)


def scatter_of(results: ExperimentResults) -> Shares:
    """Return the variances in the first category, averaged over the methods.

    Raises:
        UsageError: the results do not show how much searches vary.
    """
    shares = mean_scatter(Summary(results))
    if shares is None:
        raise UsageError(
            f"{results.name} does not show how much searches vary: that takes a finished run "
            "of repeated searches, or of one random search with a budget."
        )
    return shares


def mean_scatter(summary: Summary) -> Shares | None:
    """Return the mean variances in the first category; ``None`` if no method has both variances."""
    category = summary.categories[0]
    variances = [summary.scatter(category, m) for m in summary.methods if m not in summary.controls]
    known = [(s.search, s.training) for s in variances if None not in (s.search, s.training)]
    if not known:
        return None
    search, training = (fmean(v or 0.0 for v in column) for column in zip(*known, strict=True))
    pairs, estimates = summary.comparisons(category), summary.estimates(category)
    # Squared errors of differences, as they are and as they would be of independent methods
    actual = sum((pair.difference.error or 0.0) ** 2 for pair in pairs)
    squares = {method: (estimate.error or 0.0) ** 2 for method, estimate in estimates.items()}
    independent = sum(squares[pair.better] + squares[pair.other] for pair in pairs)
    return Shares(search, training, 1 - actual / independent if independent else 0.0)


def resolution_sentence(protocol: Protocol, methods: int, like: Shares | None = None) -> str:
    """Return a sentence on the true difference that a plan finds in four of five experiments.

    Args:
        protocol: the plan.
        methods: number of methods, which are compared pairwise.
        like: expected variances, e.g. from :func:`scatter_of`; ``None`` stands for :data:`BANK`.
    """
    shares = like or BANK
    search = protocol.search
    if Stage.SEARCH not in protocol.stages:
        return "differences: between these settings only, since nothing is searched"
    if search.budget is not None:
        error = planned_subsets_error(shares, search.trials, search.budget)
        degrees = subset_degrees(search.trials, search.budget)
    elif search.repeats < 3:
        return (
            "differences: no verdict on losses, which takes three searches of each "
            "(protocol.search.kind: repeated), or subsets of a random one; docs/choosing.md"
        )
    else:
        error = planned_error(shares, search.repeats, protocol.reproductions)
        degrees = welch_degrees(search.repeats - 1)
    pairs = max(1, math.comb(methods, 2)) * len(protocol.categories)
    error *= math.sqrt(2 * (1 - shares.common))  # of a difference
    # Degrees of freedom are those of losses that share no luck.
    least = smallest_detectable(error, degrees, pairs=pairs)
    source = "that folder" if like else "docs/calibration.md, which --like RUN replaces"
    return (
        f"differences: {points(least)} points of {METRICS[PRIMARY]} between two losses are found "
        f"in 4 of 5 such experiments ({counted(pairs, 'pair')}), if searches and trainings scatter "
        f"{scatter_text(shares)} (as in {source}); smaller ones mostly are not"
    )


def scatter_text(shares: Shares) -> str:
    """Return the standard deviations of searches and trainings in words, in points."""
    sds = [f"{100 * math.sqrt(v):.1f}" for v in (shares.search, shares.training) if v]
    return f"by {' and '.join(sds) or '0.0'} points"
