"""How small a difference a plan can be expected to show, before anything is trained."""

from __future__ import annotations

import math

from reality_check.config.metrics import METRICS, PRIMARY, Stage
from reality_check.config.protocol import Protocol
from reality_check.report.statistics import (
    Shares,
    planned_error,
    planned_subsets_error,
    smallest_detectable,
    subset_degrees,
)
from reality_check.report.text import counted, points

#: The luck of searches of ten trials and of trainings in ``docs/calibration.md``: standard
#: deviations of 0.80 and 0.47 points, means over its three losses.
BANK = Shares(search=0.0080**2, training=0.0047**2)


def resolution_sentence(protocol: Protocol, methods: int) -> str:
    """Say which true difference of two losses a plan would find in four of five experiments.

    Args:
        protocol: the plan.
        methods: how many are compared, each with each.
    """
    search = protocol.search
    if Stage.SEARCH not in protocol.stages:
        return "differences: of these values only, since nothing is searched"
    if search.budget is not None:
        error = planned_subsets_error(BANK, search.trials, search.budget)
        degrees = subset_degrees(search.trials, search.budget)
    elif search.repeats < 3:
        return (
            "differences: nothing will be said about losses, since it takes three searches of each "
            "(protocol.search.repeats), or one random search with a budget; docs/choosing.md"
        )
    else:
        error = planned_error(BANK, search.repeats, protocol.reproductions)
        degrees = search.repeats - 1
    pairs = math.comb(methods, 2)
    least = smallest_detectable(error, degrees, pairs=max(1, pairs))
    return (
        f"differences: {points(least)} points of {METRICS[PRIMARY]} between two losses are found "
        f"in 4 of 5 such experiments ({counted(pairs, 'pair')}; if searches and trainings scatter "
        "as in docs/calibration.md, by 0.8 and 0.5 points); smaller ones mostly are not"
    )
