"""How much means and differences of MAP@R may change with other test classes.

Seeds are fixed, so the same results always give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.summary import Summary
from reality_check.statistics import (
    Bounds,
    Difference,
    Estimate,
    class_totals,
    design_effect,
    percentile_interval,
    resampled_means,
    with_noise,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Uncertainty:
    """The mean of one method in one category, and its uncertainty by cause.

    Attributes:
        training: mean and interval over searches or reproductions, with these test classes.
        classes: interval for other test classes of the same kind, with these trainings.
        both: interval for other test classes and trainings; ``None`` with a single reproduction.
        deviation: standard deviation of the mean over drawn classes.
        design_effect: variance of the mean by class, divided by its variance by query.
    """

    training: Estimate
    classes: Bounds
    both: Bounds | None
    deviation: float
    design_effect: float


class Analysis:
    """Uncertainty over test classes, computed once from the scores of every query.

    Args:
        summary: summary of the results.
    """

    def __init__(self, summary: Summary) -> None:
        self.summary = summary

    @cached_property
    def uncertainties(self) -> dict[tuple[str, str], Uncertainty]:
        """Uncertainty by (method, category), if the scores of every query of all runs were kept."""
        uncertainties = {}
        for column, ((method, category), scores) in enumerate(self._scores.items()):
            estimate = self.summary.estimates(category)[method]
            draws = self._class_draws[:, column]
            # Per class, the sums of the scores and of their squares
            (sums, square_sums), _ = class_totals(np.stack([scores, scores**2]), self._labels)
            uncertainties[method, category] = Uncertainty(
                estimate,
                percentile_interval(draws, estimate.mean, len(self._counts)),
                self._with_training_noise(draws, estimate),
                float(np.std(draws, ddof=1)),
                design_effect(sums, self._counts, square_sums),
            )
        return uncertainties

    @cached_property
    def unscored(self) -> tuple[tuple[str, str], ...]:
        """The (method, category) pairs that have results, but lack scores of some queries."""
        return tuple(key for key in self._finite_results() if key not in self._scores)

    @property
    def test_classes(self) -> int:
        """Number of test classes that have queries; 0 if no scores were kept."""
        return len(self._counts)

    @cached_property
    def _scores(self) -> dict[tuple[str, str], Array]:
        """Mean MAP@R of each query over runs, by (method, category), if all scores were kept."""
        queries, means = self.summary.results.queries, {}
        if queries is None or len(np.unique(queries.labels)) < 2:
            return {}
        metric_row = list(METRICS).index(PRIMARY)
        for method, category in self._finite_results():
            runs = [row.reproduction for row in self.summary.rows[category, PRIMARY, method]]
            loaded = ((run, queries.load(method, category, run)) for run in runs)
            known = {run: scores[metric_row] for run, scores in loaded if scores is not None}
            if len(known) == len(runs):
                weights = self.summary.shares(category, method)
                means[method, category] = sum(weights[run] * known[run] for run in runs)
        return means

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        """Class of each query; empty if no scores were kept."""
        queries = self.summary.results.queries
        return np.zeros(0, dtype=np.int64) if queries is None else queries.labels

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """Number of queries of each test class."""
        return np.unique(self._labels, return_counts=True)[1]

    @cached_property
    def _class_draws(self) -> Array:
        """Means over drawn classes; all methods and categories see the same draws."""
        totals, counts = class_totals(np.stack(list(self._scores.values())), self._labels)
        return resampled_means(totals, counts)

    @cached_property
    def differences(self) -> dict[tuple[str, str, str], Bounds]:
        """Interval by (category, better, other) for other test classes and trainings.

        Pairs without the scores of every query, or without a standard error, are left out.
        """
        columns = {key: column for column, key in enumerate(self._scores)}
        differences = {}
        for category in self.summary.categories:
            for pair in self.summary.comparisons(category):
                keys = (pair.better, category), (pair.other, category)
                if all(key in columns for key in keys):
                    better, other = (self._class_draws[:, columns[key]] for key in keys)
                    if bounds := self._with_training_noise(better - other, pair.difference):
                        differences[category, pair.better, pair.other] = bounds
        return differences

    def _with_training_noise(self, draws: Array, estimate: Estimate | Difference) -> Bounds | None:
        """Return the interval over drawn classes with the noise of training added to the draws.

        The result is ``None`` if the estimate has no standard error.
        """
        if estimate.error is None or estimate.degrees is None:
            return None
        noisy = with_noise(draws, estimate.error, estimate.degrees)
        return percentile_interval(noisy, estimate.mean, len(self._counts))

    def _finite_results(self) -> Iterator[tuple[str, str]]:
        """Yield the (method, category) pairs whose results are all finite."""
        for category in self.summary.categories:
            for method, values in self.summary.samples(category, PRIMARY).items():
                if np.isfinite(values).all():
                    yield method, category
