"""The same methods compared over several data sets."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property
from statistics import fmean
from typing import Any

from reality_check.config.suite import check_alike
from reality_check.report.summary import Evidence, Summary
from reality_check.report.untrained import untrained
from reality_check.results import SuiteResults
from reality_check.statistics import (
    Difference,
    SuiteComparison,
    adjust_pairs,
    at_least,
    mean_over_data_sets,
    on_other_data_sets,
    one_sided_p,
)
from reality_check.utils.errors import UsageError


class SuiteSummary:
    """A read-only view of results over several data sets, in the order of tables and figures.

    Args:
        results: the results of each data set.

    Raises:
        UsageError: they differ in what must be the same for one verdict.
    """

    def __init__(self, results: SuiteResults) -> None:
        if len(results.members) < 2:
            raise UsageError("a verdict over data sets needs two or more of them.")
        self.results = results
        #: The summary of each data set, by its name.
        self.members = {name: Summary(member) for name, member in results.members.items()}
        check_alike(
            {name: member.config for name, member in results.members.items()},
            {name: summary.methods for name, summary in self.members.items()},
        )
        first = next(iter(self.members.values()))
        self.categories = first.categories
        self.measure = first.results.measure
        self._names = [name for name in first.methods if name not in first.controls]
        #: The methods, without controls, by their mean over data sets in the first category.
        self.methods = self._ranked(self.categories[0])

    @cached_property
    def evidence(self) -> Evidence:
        """The weakest evidence of a data set with results, which decides what is said of all."""
        found = {each.evidence for each in self.members.values() if each.results.rows}
        return max(found or {Evidence.VALUES}, key=[*Evidence].index)

    def mean(self, category: str, method: str) -> float | None:
        """Return the mean score over the data sets that have scores of all methods, if any has."""
        estimates = [member.estimates(category) for member in self.members.values()]
        means = [each[method].mean for each in estimates if {*self._names} <= {*each}]
        return fmean(means) if means else None

    @cached_property
    def undecided(self) -> dict[str, str]:
        """Why a data set counts as undecided for every pair, by its name."""
        reasons = {}
        for name, member in self.members.items():
            best = next(iter(untrained(member)), None)
            if not member.results.finished:
                reasons[name] = "is not finished"
            elif best is not None and {*self.methods} <= {*best.unbeaten}:
                reasons[name] = f"has no method shown to be better than {best.name}"
        return reasons

    def undecided_sentences(self) -> list[str]:
        """Return a sentence on each data set that is :attr:`undecided`."""
        return [
            f"{name} {reason}, so it counts as undecided for every pair."
            for name, reason in self.undecided.items()
        ]

    @cached_property
    def comparisons(self) -> dict[str, tuple[SuiteComparison, ...]]:
        """The comparisons of all pairs by category, those of the best method first.

        All statements together carry one correction. Data sets that are :attr:`undecided` count
        with p = 1, since leaving them out would select data sets by their results.
        """
        independent = self.results.independent
        pairs = [
            (category, *pair)
            for category in self.categories
            for pair in itertools.combinations(self._ranked(category), 2)
        ]
        known = [self._differences(*pair) for pair in pairs]
        sides = []
        for pair, differences in zip(pairs, known, strict=True):
            above, below = (
                [
                    1.0 if name in self.undecided else one_sided_p(d, self._degrees(name, *pair), s)
                    for name, d in differences.items()
                ]
                for s in (1, -1)
            )
            sides.append((at_least(above, independent), at_least(below, independent)))
        found: dict[str, list[SuiteComparison]] = {category: [] for category in self.categories}
        adjusted = adjust_pairs(sides)
        for (category, a, b), differences, p in zip(pairs, known, adjusted, strict=True):
            values = tuple(differences.values())
            mean = mean_over_data_sets(values, independent)
            relative = mean_over_data_sets(self._relative(category, b, values), independent)
            found[category].append(
                SuiteComparison(
                    a, b, values, *p, len(pairs), mean, relative, on_other_data_sets(values)
                )
            )
        return {category: tuple(each) for category, each in found.items()}

    def ranks(self, category: str, name: str) -> dict[str, tuple[int, int]]:
        """Return the highest and the lowest rank that each method may have on a data set.

        As many methods are above or below it as its report shows, by Holm-corrected tests.
        """
        above, below = dict.fromkeys(self.methods, 0), dict.fromkeys(self.methods, 0)
        for pair in self.members[name].comparisons(category):
            above[pair.other] += pair.distinct
            below[pair.better] += pair.distinct
        return {m: (1 + above[m], len(self.methods) - below[m]) for m in self.methods}

    def _ranked(self, category: str) -> list[str]:
        """Return the methods by their mean over data sets; those without one come last."""
        means = {method: self.mean(category, method) for method in self._names}
        known = {m: mean for m, mean in means.items() if mean is not None and math.isfinite(mean)}
        return sorted(means, key=lambda method: -known.get(method, -math.inf))

    def _differences(self, category: str, a: str, b: str) -> dict[str, Difference | None]:
        """Return ``a`` minus ``b`` on each data set."""
        found: dict[str, Difference | None] = {}
        for name, member in self.members.items():
            pairs = {(p.better, p.other): p.difference for p in member.comparisons(category)}
            found[name] = pairs.get((a, b))
            if (turned := pairs.get((b, a))) is not None:
                found[name] = dataclasses.replace(turned, mean=-turned.mean, n=turned.n[::-1])
        return found

    def _degrees(self, name: str, category: str, *pair: str) -> float:
        """Return the fewest degrees of freedom of the estimates of both methods on a data set."""
        estimates = self.members[name].estimates(category)
        known = (estimates[method].degrees for method in pair if method in estimates)
        return min((each for each in known if each is not None), default=math.inf)

    def _relative(self, category: str, other: str, differences: Any) -> list[Difference | None]:
        """Return the differences as fractions of the scores of ``other``."""
        relative: list[Difference | None] = []
        for member, difference in zip(self.members.values(), differences, strict=True):
            known, score = None, member.estimates(category).get(other)
            if difference is not None and score is not None and score.mean > 0:
                error = difference.error and difference.error / score.mean
                mean = difference.mean / score.mean
                known = dataclasses.replace(difference, mean=mean, error=error)
            relative.append(known)
        return relative
