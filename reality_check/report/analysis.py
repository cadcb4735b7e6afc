"""The statistics of an experiment, computed once, as plain data that the sections put into words.

Everything is about MAP@R. Fixed seeds: the same results always give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.summary import Basis, Summary
from reality_check.statistics import (
    Bounds,
    Comparison,
    Difference,
    Estimate,
    Ranking,
    class_totals,
    cliffs_delta,
    cohens_d,
    design_effect,
    estimate_difference,
    holm_of_known,
    paired_difference,
    paired_effect,
    paired_subsets_difference,
    percentile_interval,
    probability_of_improvement,
    rank_methods,
    resampled_means,
    with_noise,
)

Array = NDArray[np.float64]

#: Draws of single queries: a yardstick only, and there can be 60,000 of them.
_QUERY_DRAWS = 1000


@dataclass(frozen=True)
class Pair(Comparison):
    """Two methods compared on their common seeds, in one category, the difference paired by seed.

    Attributes:
        better: name of the method with the higher mean over the common seeds (see :meth:`turned`).
        category: of the results.
        won: at how many seeds ``better`` is above, ties not counted; ``None`` where the pair is not
            compared seed by seed.
        effect: Cohen's d_z.
        standardised: Cohen's d, which ignores that seeds are common.
        improvement: probability that a run of ``better`` is above one of ``other``.
        dominance: Cliff's delta.
        anywhere: the difference with the luck of the test classes and of the training together;
            ``None`` without the scores of every query, and with different seeds.
    """

    category: str
    won: int | None = None
    lost: int | None = None
    effect: Bounds | None = None
    standardised: Bounds | None = None
    improvement: Bounds | None = None
    dominance: Bounds | None = None
    anywhere: Bounds | None = None

    @property
    def seeds(self) -> int:
        return self.difference.n[0]

    def turned(self) -> Pair:
        """The same comparison with the methods exchanged: ``better`` is then the lower one."""
        return replace(
            self,
            better=self.other,
            other=self.better,
            difference=replace(self.difference, mean=-self.difference.mean),
            won=self.lost,
            lost=self.won,
            effect=_mirrored(self.effect),
            standardised=_mirrored(self.standardised),
            improvement=_mirrored(self.improvement, total=1.0),
            dominance=_mirrored(self.dominance),
            anywhere=_mirrored(self.anywhere),
        )


def _mirrored(bounds: Bounds | None, total: float = 0.0) -> Bounds | None:
    """The same for the methods exchanged; ``total`` is what both numbers come to together."""
    if bounds is None:
        return None
    return Bounds(total - bounds.value, total - bounds.high, total - bounds.low)


@dataclass(frozen=True)
class AgainstBest:
    """The best method of a category against the others.

    Attributes:
        best: name of the method with the highest mean over all its runs.
        pairs: ``best`` first, with each method that it shares a seed with, in the order of their
            means; on the common seeds the other one may be above.
        apart: names of the methods that it shares no seed with.
    """

    best: str
    pairs: tuple[Pair, ...]
    apart: tuple[str, ...]

    @property
    def above(self) -> tuple[str, ...]:
        """Names of the methods that are above ``best`` on the common seeds."""
        return tuple(pair.other for pair in self.pairs if pair.difference.mean < 0)


def _against(best: str, others: Sequence[str], pairs: Sequence[Pair]) -> AgainstBest:
    own = [pair for pair in pairs if best in (pair.better, pair.other)]
    first = tuple(pair if pair.better == best else pair.turned() for pair in own)
    shared = {pair.other for pair in first}
    return AgainstBest(best, first, tuple(name for name in others if name not in shared))


@dataclass(frozen=True)
class Uncertainty:
    """One method in one category: its mean, and how far it may be off for which reason.

    Attributes:
        training: over searches, or reproductions, on these classes.
        classes: other test classes of the kind, these trainings.
        both: both together; ``None`` with a single reproduction.
        deviation: standard deviation of the mean over drawn classes.
        queries: other images as if each were drawn alone, which they are not.
        design_effect: variance by class over variance by query.
    """

    training: Estimate
    classes: Bounds
    both: Bounds | None
    deviation: float
    queries: Bounds
    design_effect: float


class Analysis:
    """The statistics of an experiment.

    Args:
        summary: the results.
    """

    def __init__(self, summary: Summary) -> None:
        self.summary = summary

    @cached_property
    def pairs(self) -> dict[str, tuple[Pair, ...]]:
        """Every pair of methods with a common seed by category; those of the best come first."""
        return {category: self._pairs(category) for category in self.summary.categories}

    @cached_property
    def against_best(self) -> dict[str, AgainstBest]:
        """The best method against the others, by category with at least two methods."""
        ranked = {category: self._ranked(category) for category in self.summary.categories}
        return {
            category: _against(names[0], names[1:], self.pairs[category])
            for category, names in ranked.items()
            if len(names) > 1
        }

    @cached_property
    def rankings(self) -> dict[str, Ranking]:
        """By category: methods ranked at each seed that all of them have."""
        rankings: dict[str, Ranking] = {}
        if self.summary.basis is Basis.SUBSETS:
            return rankings
        for category in self.summary.categories:
            runs = self._runs(category)
            common = set.intersection(*map(set, runs.values())) if runs else set()
            if len(runs) > 1 and common:
                blocks = [
                    {m: values[seed] for m, values in runs.items()} for seed in sorted(common)
                ]
                rankings[category] = rank_methods(blocks)
        return rankings

    @cached_property
    def mean_ranks(self) -> dict[str, dict[tuple[str, str], float]]:
        """Each method's rank among all (1 is best, ties share) by (category, metric).

        Only cells in which every method has a result.
        """
        ranks: dict[str, dict[tuple[str, str], float]] = {m: {} for m in self.summary.methods}
        for category in self.summary.categories:
            for metric in METRICS:
                estimates = self.summary.estimates(category, metric)
                means = {m: e.mean for m, e in estimates.items() if np.isfinite(e.mean)}
                if 2 <= len(means) == len(self.summary.methods):
                    ranking = rank_methods([means])
                    for method, rank in zip(ranking.methods, ranking.mean_ranks, strict=True):
                        ranks[method][category, metric] = rank
        return ranks

    # -- test classes -----------------------------------------------------------------------

    @cached_property
    def uncertainties(self) -> dict[tuple[str, str], Uncertainty]:
        """By (method, category), where the scores of every query of all runs were kept."""
        uncertainties = {}
        for place, (method, category) in enumerate(self._scores):
            estimate = self.summary.estimates(category)[method]
            mean = estimate.mean
            draws, classes = self._class_draws[:, place], len(self._counts)
            scores = self._scores[method, category]
            sums, _ = class_totals(np.stack([scores, scores**2]), self._labels)
            uncertainties[method, category] = Uncertainty(
                estimate,
                percentile_interval(draws, mean, classes),
                self._trained_again(draws, estimate),
                float(np.std(draws, ddof=1)),
                percentile_interval(self._query_draws[:, place], mean, len(scores)),
                design_effect(sums[0], self._counts, sums[1]),
            )
        return uncertainties

    @cached_property
    def unscored(self) -> tuple[tuple[str, str], ...]:
        """The (method, category) with results of which some scores of queries are missing."""
        return tuple(key for key in self._with_results() if key not in self._scores)

    @property
    def test_classes(self) -> int:
        """How many test classes have queries; 0 where no scores were kept."""
        return len(self._counts)

    @cached_property
    def _scores(self) -> dict[tuple[str, str], Array]:
        """The MAP@R of each query, mean over the runs, where all of them were kept."""
        queries, means = self.summary.results.queries, {}
        if queries is None or len(np.unique(queries.labels)) < 2:
            return {}
        row = list(METRICS).index(PRIMARY)
        for method, category in self._with_results():
            runs = self.summary.runs[category, PRIMARY, method]
            loaded = {run: queries.load(method, category, run) for run in runs}
            kept = {run: scores[row] for run, scores in loaded.items() if scores is not None}
            if len(kept) == len(runs):
                shares = self.summary.shares(category, method)
                means[method, category] = sum(shares[run] * kept[run] for run in runs)
        return means

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        queries = self.summary.results.queries
        return np.zeros(0, dtype=np.int64) if queries is None else queries.labels

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        return np.unique(self._labels, return_counts=True)[1]

    @cached_property
    def _class_draws(self) -> Array:
        """Means over drawn classes, the same classes for all methods and categories."""
        totals, counts = class_totals(np.stack(list(self._scores.values())), self._labels)
        return resampled_means(totals, counts)

    @cached_property
    def _query_draws(self) -> Array:
        scores = np.stack(list(self._scores.values()))
        return resampled_means(scores, np.ones(scores.shape[1], dtype=np.int64), _QUERY_DRAWS)

    # -- pairs ------------------------------------------------------------------------------

    def _pairs(self, category: str) -> tuple[Pair, ...]:
        runs, ranked = self._runs(category), self._ranked(category)
        pairs = [
            self._pair(category, a, b, runs)
            for i, a in enumerate(ranked)
            for b in ranked[i + 1 :]
            if self.summary.basis is Basis.SUBSETS or set(runs[a]) & set(runs[b])
        ]
        adjusted = holm_of_known([pair.difference.p_value for pair in pairs])
        tested = sum(p is not None for p in adjusted)
        return tuple(
            replace(pair, adjusted_p=p, pairs=tested)
            for pair, p in zip(pairs, adjusted, strict=True)
        )

    def _ranked(self, category: str) -> list[str]:
        """The methods by their means, the best first; a control is none."""
        estimates = self.summary.estimates(category)
        names = [m for m in self._runs(category) if m not in self.summary.controls]
        return sorted(names, key=lambda method: -estimates[method].mean)

    def _subsets_pair(self, category: str, a: str, b: str) -> Pair:
        """Two methods by the trials that they have in common."""
        rows = self.summary.rows
        first, second = (self.summary.subsets(rows[category, PRIMARY, m]) for m in (a, b))
        if len(first[0]) == len(second[0]):
            difference = paired_subsets_difference(first, second, self.summary.budget)
        else:
            estimates = self.summary.estimates(category)
            difference = estimate_difference(estimates[a], estimates[b])
        anywhere = self._anywhere(category, a, b, difference)
        return Pair(a, b, difference, None, 0, category, anywhere=anywhere)

    def _pair(self, category: str, a: str, b: str, runs: dict[str, dict[int, float]]) -> Pair:
        if self.summary.basis is Basis.SUBSETS:
            return self._subsets_pair(category, a, b)
        common = [seed for seed in runs[a] if seed in runs[b]]
        first, second = ([runs[method][seed] for seed in common] for method in (a, b))
        if sum(first) < sum(second):
            a, b, first, second = b, a, second, first
        difference = paired_difference(first, second)
        alike = set(runs[a]) == set(runs[b])
        return Pair(
            *(a, b, difference, None, 0, category),
            sum(x > y for x, y in zip(first, second, strict=True)),
            sum(x < y for x, y in zip(first, second, strict=True)),
            paired_effect(first, second),
            cohens_d(first, second),
            probability_of_improvement(first, second),
            cliffs_delta(first, second),
            self._anywhere(category, a, b, difference) if alike else None,
        )

    def _anywhere(self, category: str, a: str, b: str, difference: Difference) -> Bounds | None:
        keys = list(self._scores)
        if not {(a, category), (b, category)} <= set(keys):
            return None
        first, second = (self._class_draws[:, keys.index((m, category))] for m in (a, b))
        return self._trained_again(first - second, difference)

    def _trained_again(self, draws: Array, number: Estimate | Difference) -> Bounds | None:
        """The interval over drawn classes with the luck of the training."""
        if number.error is None or number.degrees is None:
            return None
        noisy = with_noise(draws, number.error, number.degrees)
        return percentile_interval(noisy, number.mean, len(self._counts))

    def _runs(self, category: str) -> dict[str, dict[int, float]]:
        """MAP@R by method and reproduction, of the methods that have some, all of them finite."""
        runs = {m: self.summary.values.get((category, PRIMARY, m)) for m in self.summary.methods}
        return {
            method: values
            for method, values in runs.items()
            if values and np.isfinite(list(values.values())).all()
        }

    def _with_results(self) -> Iterator[tuple[str, str]]:
        for category in self.summary.categories:
            for method in self._runs(category):
                yield method, category
