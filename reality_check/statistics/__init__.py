"""The numbers behind the report, as pure functions of plain data.

Intervals over reproductions of one winner describe training noise only. Intervals over searches, or
over all subsets of one random search, describe the loss tuned with that budget. Neither covers
other test classes or other splits. ``docs/statistics.md`` says when each number misleads.
"""

from __future__ import annotations

from reality_check.statistics._agreement import (
    Agreement,
    rank_agreement,
)
from reality_check.statistics._bootstrap import (
    class_totals,
    design_effect,
    percentile_interval,
    resampled_means,
    with_noise,
)
from reality_check.statistics._differences import (
    MIN_TESTED,
    Comparison,
    Difference,
    Simultaneous,
    holm,
    holm_of_known,
    satterthwaite,
    simultaneous_p,
    simultaneous_quantile,
)
from reality_check.statistics._effects import probability_of_improvement
from reality_check.statistics._evidence import Weakness, weak_evidence
from reality_check.statistics._intervals import (
    CONFIDENCE,
    Bounds,
    Centred,
    Estimate,
    jackknife_error,
    t_interval,
    t_quantile,
)
from reality_check.statistics._searches import (
    Shares,
    allow_for_skew,
    compare_estimates,
    estimate_difference,
    over_searches,
    planned_error,
    skew_allowance,
    smallest_detectable,
    times_to_detect,
    variance_shares,
    welch_degrees,
)
from reality_check.statistics._subsets import (
    MAX_LEFT_OUT,
    all_subsets,
    budget_curve,
    is_estimable,
    left_out,
    planned_subsets_error,
    scatter_error,
    subset_degrees,
    subset_estimates,
    subset_shares,
    subset_weights,
)
from reality_check.statistics._suites import (
    MIN_DATA_SETS,
    SuiteComparison,
    adjust_pairs,
    at_least,
    mean_over_data_sets,
    on_other_data_sets,
    one_sided_p,
)

__all__ = [
    "CONFIDENCE",
    "MAX_LEFT_OUT",
    "MIN_DATA_SETS",
    "MIN_TESTED",
    "Agreement",
    "Bounds",
    "Centred",
    "Comparison",
    "Difference",
    "Estimate",
    "Shares",
    "Simultaneous",
    "SuiteComparison",
    "Weakness",
    "adjust_pairs",
    "all_subsets",
    "allow_for_skew",
    "at_least",
    "budget_curve",
    "class_totals",
    "compare_estimates",
    "design_effect",
    "estimate_difference",
    "holm",
    "holm_of_known",
    "is_estimable",
    "jackknife_error",
    "left_out",
    "mean_over_data_sets",
    "on_other_data_sets",
    "one_sided_p",
    "over_searches",
    "percentile_interval",
    "planned_error",
    "planned_subsets_error",
    "probability_of_improvement",
    "rank_agreement",
    "resampled_means",
    "satterthwaite",
    "scatter_error",
    "simultaneous_p",
    "simultaneous_quantile",
    "skew_allowance",
    "smallest_detectable",
    "subset_degrees",
    "subset_estimates",
    "subset_shares",
    "subset_weights",
    "t_interval",
    "t_quantile",
    "times_to_detect",
    "variance_shares",
    "weak_evidence",
    "welch_degrees",
    "with_noise",
]
