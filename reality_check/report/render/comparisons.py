"""``comparisons.csv``: every pair of methods, with every number of the section on pairs."""

from __future__ import annotations

from typing import Any

from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis, Pair
from reality_check.report.tables import csv_of

_BOUNDS = ("d_z", "d", "probability", "cliffs_delta")

#: Header of the file. Differences are fractions; an interval has the endings ``_low``, ``_high``.
COLUMNS = (
    "category",
    "metric",
    "better",
    "other",
    "seeds",
    "seeds_won",
    "difference",
    "difference_low",
    "difference_high",
    "any_classes_low",
    "any_classes_high",
    "p",
    "holm_p",
    "pairs_tested",
    *(name + ending for name in _BOUNDS for ending in ("", "_low", "_high")),
)


def comparisons_csv(analysis: Analysis) -> str:
    """Return the file: one row per category and pair; empty cells where a number is not known."""
    return csv_of(
        COLUMNS,
        (_row(category, pair) for category, pairs in analysis.pairs.items() for pair in pairs),
    )


def _row(category: str, pair: Pair) -> list[Any]:
    anywhere, difference = pair.anywhere, pair.difference
    numbers: list[float | None] = [difference.mean, difference.low, difference.high]
    numbers += [anywhere.low, anywhere.high] if anywhere else [None, None]
    numbers += [difference.p_value, pair.adjusted_p]
    effects: list[float | None] = []
    for bounds in (pair.effect, pair.standardised, pair.improvement, pair.dominance):
        effects += [bounds.value, bounds.low, bounds.high] if bounds else [None] * 3
    plain = [[None if one is None else float(one) for one in part] for part in (numbers, effects)]
    names = [category, PRIMARY, pair.better, pair.other, pair.seeds, pair.won]
    return [*names, *plain[0], pair.tested, *plain[1]]
