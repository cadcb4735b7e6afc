"""``comparisons.csv``: every pair of methods, with every number of the section on pairs."""

from __future__ import annotations

import csv
import io

from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis, Pair
from reality_check.report.statistics import Bounds

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
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for category, pairs in analysis.pairs.items():
        writer.writerows(_row(category, pair) for pair in pairs)
    return stream.getvalue()


def _row(category: str, pair: Pair) -> list[str]:
    anywhere, difference = pair.anywhere, pair.difference
    numbers: list[float | None] = [difference.mean, difference.low, difference.high]
    numbers += [anywhere.low, anywhere.high] if anywhere else [None, None]
    numbers += [difference.p_value, pair.adjusted_p]
    effects: list[float | None] = []
    for bounds in (pair.effect, pair.standardised, pair.improvement, pair.dominance):
        effects += _three(bounds)
    won = "" if pair.won is None else str(pair.won)
    names = [category, PRIMARY, pair.better, pair.other, str(pair.seeds), won]
    return [*names, *map(_text, numbers), str(pair.tested), *map(_text, effects)]


def _three(bounds: Bounds | None) -> list[float | None]:
    return [None] * 3 if bounds is None else [bounds.value, bounds.low, bounds.high]


def _text(number: float | None) -> str:
    """Every digit, or nothing."""
    return "" if number is None else repr(float(number))
