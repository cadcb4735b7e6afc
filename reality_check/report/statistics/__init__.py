"""The numbers behind the report, as pure functions of plain data.

Intervals over reproductions describe training noise only: retrainings of one winner with fresh
seeds. They say nothing about other test classes, other splits or the luck of the search.
``docs/statistics.md`` says of each number when it misleads.
"""

from __future__ import annotations

from reality_check.report.statistics._differences import (
    Comparison,
    Difference,
    compare_pairs,
    holm,
    paired_difference,
    welch_difference,
)
from reality_check.report.statistics._intervals import CONFIDENCE, Bounds, Interval, t_interval

__all__ = [
    "CONFIDENCE",
    "Bounds",
    "Comparison",
    "Difference",
    "Interval",
    "compare_pairs",
    "holm",
    "paired_difference",
    "t_interval",
    "welch_difference",
]
