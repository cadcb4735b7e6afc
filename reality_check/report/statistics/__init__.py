"""The numbers behind the report, as pure functions of plain data.

Intervals over reproductions describe training noise only: retrainings of one winner with fresh
seeds. They say nothing about other test classes, other splits or the luck of the search.
``docs/statistics.md`` says of each number when it misleads.
"""

from __future__ import annotations

from reality_check.report.statistics._agreement import (
    Agreement,
    prediction_interval,
    rank_agreement,
    selection_gap,
)
from reality_check.report.statistics._bootstrap import (
    class_totals,
    design_effect,
    percentile_interval,
    resampled_means,
    with_training_noise,
)
from reality_check.report.statistics._differences import (
    Comparison,
    Difference,
    compare_pairs,
    holm,
    paired_difference,
    welch_difference,
)
from reality_check.report.statistics._effects import (
    cliffs_delta,
    cohens_d,
    paired_effect,
    probability_of_improvement,
)
from reality_check.report.statistics._intervals import CONFIDENCE, Bounds, Interval, t_interval
from reality_check.report.statistics._ranks import Ranking, critical_difference, rank_methods
from reality_check.report.statistics._search import (
    Lead,
    expected_best,
    expected_best_band,
    leaders_by_budget,
)

__all__ = [
    "CONFIDENCE",
    "Agreement",
    "Bounds",
    "Comparison",
    "Difference",
    "Interval",
    "Lead",
    "Ranking",
    "class_totals",
    "cliffs_delta",
    "cohens_d",
    "compare_pairs",
    "critical_difference",
    "design_effect",
    "expected_best",
    "expected_best_band",
    "holm",
    "leaders_by_budget",
    "paired_difference",
    "paired_effect",
    "percentile_interval",
    "prediction_interval",
    "probability_of_improvement",
    "rank_agreement",
    "rank_methods",
    "resampled_means",
    "selection_gap",
    "t_interval",
    "welch_difference",
    "with_training_noise",
]
