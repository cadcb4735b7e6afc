"""Decide the claims of an experiment: supported, contradicted, or neither.

A claim (:class:`reality_check.config.claims.Claim`) is locked with the experiment before it runs,
so the verdict follows from the numbers alone. With d the difference of what two methods score
(:meth:`Summary.estimates`) and m the claim's margin:

========= ==================== ======================================== ==================
test      supported            contradicted                             undecided
========= ==================== ======================================== ==================
above     d > 0                d < 0; certainly -m < d < m: "smaller    else
                               than the margin"
not_below d > -m               d < -m                                   else
equal     -m < d < m           d < -m or d > m                          else
========= ==================== ======================================== ==================

"d > 0" and the like mean that a two-sided test at 5 % says so; "-m < d < m" that both one-sided
tests do (TOST: Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power
approach for assessing the equivalence of average bioavailability"). All tests of an experiment, of
both kinds, are one family of Holm's correction. Estimates are over searches where they repeat; one
search of each of two methods is undecided. Values of the same networks (one method, aggregate
against ensemble or one metric against another) are subtracted before they are averaged. A claim of
several comparisons is supported where all are; else the verdict is that of the one that weighs
most. Where neither side is better than the untrained network, it is uninformative. A run that
diverged counts as 0; where only such runs are compared, the claim is undecided: methods that all
fail are not equally good.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from reality_check.config.claims import Claim, Measured
from reality_check.config.metrics import stage_of
from reality_check.config.schema import Experiment
from reality_check.report.summary import Evidence, Summary
from reality_check.results import ExperimentResults
from reality_check.statistics import (
    CONFIDENCE,
    Difference,
    Estimate,
    estimate_difference,
    holm_of_known,
    times_to_detect,
)

Verdict = Literal[
    "supported", "contradicted", "smaller than the margin", "uninformative", "undecided"
]
#: Of several comparisons, the first of these that one of them has is the claim's.
_ORDER: tuple[Verdict, ...] = (
    "contradicted",
    "smaller than the margin",
    "uninformative",
    "undecided",
    "supported",
)


@dataclass(frozen=True)
class Finding:
    """One comparison of a claim.

    Attributes:
        first: what should be higher.
        second: what it is compared with.
        difference: first minus second, in the unit of the metric (mostly a fraction), with the
            95 % interval of this comparison alone; ``None`` where one of them has no results, or
            every run diverged.
        p: that the difference is what the test denies (see the module's table), two-sided, after
            Holm's correction; ``None`` without an interval.
        p_equal: that the difference is beyond the margin, after Holm's correction; ``None`` too for
            a test that does not ask.
        verdict: of this comparison.
        why: what is in the way, empty where there is an interval.
        diverged: how many runs of the first and of the second diverged, and count as 0.
        times: of an undecided comparison, how many times as many searches (trials, of all subsets
            of one search) would decide it in four of five experiments, if the difference is what
            was found; ``None`` where none would.
    """

    first: Measured
    second: Measured
    difference: Difference | None
    p: float | None
    p_equal: float | None
    verdict: Verdict
    why: str = ""
    diverged: tuple[int, int] = (0, 0)
    times: float | None = None


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict and the comparisons it follows from."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(experiment: Experiment, results: ExperimentResults) -> tuple[ClaimVerdict, ...]:
    """Decide all claims of an experiment.

    Args:
        experiment: with the claims, as it was run.
        results: what was measured; its records say which runs diverged.

    Returns:
        In the order of the claims.
    """
    from reality_check.report.sections.untrained import not_above_untrained  # imports matplotlib

    summary = Summary(results)
    no_better = not_above_untrained(summary)
    comparisons = [
        [
            _Comparison(claim, summary, no_better, *(_Side(side, summary) for side in sides))
            for sides in claim.comparisons()
        ]
        for claim in experiment.claims
    ]
    every = itertools.chain.from_iterable(comparisons)
    p_values = [p for comparison in every for p in (comparison.p, comparison.p_equal)]
    tests = sum(p is not None for p in p_values)
    corrected = iter(holm_of_known(p_values))
    verdicts = []
    for claim, own in zip(experiment.claims, comparisons, strict=True):
        findings = tuple(pair.finding(next(corrected), next(corrected), tests) for pair in own)
        verdict = min((finding.verdict for finding in findings), key=_ORDER.index)
        verdicts.append(ClaimVerdict(claim, verdict, findings))
    return tuple(verdicts)


class _Side:
    """One side of a comparison."""

    def __init__(self, measured: Measured, summary: Summary) -> None:
        self.measured = measured
        rows = summary.rows.get((measured.category, measured.metric, measured.method), [])
        self.rows = {row.reproduction: row for row in rows}
        #: Which networks: the method, and the stage that trained them.
        self.networks = measured.method, stage_of(measured.category)
        record = summary.records.get(measured.method)
        runs = getattr(record, self.networks[1]) if record else ()
        self._diverged_runs = {run.trial_index for run in runs if run.diverged is not None}

    @property
    def diverged(self) -> int:
        """Count the values that are zeros of runs that diverged."""
        return sum(run in self._diverged_runs for run in self.rows)


class _Comparison:
    """One comparison before the correction."""

    def __init__(
        self, claim: Claim, summary: Summary, no_better: Collection[str], *sides: _Side
    ) -> None:
        self.claim, self._summary = claim, summary
        #: Methods that are not better than the untrained network.
        self._no_better = no_better
        self._sides = sides
        self.first, self.second = first, second = sides
        self._paired = first.networks == second.networks
        if self._paired:
            common = sorted(first.rows.keys() & second.rows.keys())
            for side in self._sides:
                side.rows = {run: side.rows[run] for run in common}
        nothing = self._nothing()
        self.difference = None if nothing else self._shifted(0.0)
        #: What is in the way of a test; empty where there is one.
        self.why = nothing or self._untestable()
        score = summary.estimate(list(second.rows.values())).mean if self.difference else 0.0
        self.margin = claim.margin_at(score, first.measured.metric)
        self.p = None if self.why else self._p()
        self.p_equal = None if self.why or claim.test == "not_below" else self._p_equal()

    def _nothing(self) -> str:
        """Return why there is nothing to compare; empty where there is."""
        for side in self._sides:
            if not side.rows:
                return f"{side.measured.method} has no results"
        if any(side.diverged < len(side.rows) for side in self._sides):
            return ""
        methods = dict.fromkeys(side.measured.method for side in self._sides)
        return f"every run of {' and '.join(methods)} diverged"

    def _untestable(self) -> str:
        """Return why the difference decides nothing; empty where it does."""
        losses = self.first.measured.method != self.second.measured.method
        if self._summary.evidence is Evidence.SETTINGS and losses:
            return "one search of each method cannot distinguish losses"
        if self.difference is not None and self.difference.p_value is None:
            return "no test with fewer than three reproductions whose values are finite"
        return ""

    def _shifted(self, shift: float) -> Difference:
        """Return the difference plus a number: its test against 0 is one against minus that."""
        if self._paired:
            rows = [
                dataclasses.replace(row, value=row.value - self.second.rows[run].value)
                for run, row in self.first.rows.items()
            ]
            first = self._summary.estimate(rows)
            second = Estimate(0.0, 0.0, 0.0, math.inf, first.n)
        else:
            first, second = (self._summary.estimate(list(s.rows.values())) for s in self._sides)
        return estimate_difference(dataclasses.replace(first, mean=first.mean + shift), second)

    def _p(self) -> float:
        if self.claim.test == "equal":  # beyond the margin on either side
            beyond = self._one_sided(self.margin, -1), self._one_sided(-self.margin, 1)
            return min(1.0, 2 * min(beyond))
        p = self._shifted(0.0 if self.claim.test == "above" else self.margin).p_value
        assert p is not None
        return p

    def _p_equal(self) -> float:
        return max(self._one_sided(self.margin, 1), self._one_sided(-self.margin, -1))

    def _one_sided(self, shift: float, sign: int) -> float:
        """Return the p-value for "the difference plus ``shift`` does not have this sign"."""
        difference = self._shifted(shift)
        assert difference.p_value is not None
        half = difference.p_value / 2
        return half if sign * difference.mean > 0 else 1 - half

    def finding(self, p: float | None, p_equal: float | None, tests: int) -> Finding:
        """Return the comparison with its corrected p-values and what follows from them.

        Args:
            p: of its test.
            p_equal: of that for equality.
            tests: of the whole experiment, which are corrected for.
        """
        verdict = self._verdict(p, p_equal)
        return Finding(
            self.first.measured,
            self.second.measured,
            self.difference,
            p,
            p_equal,
            verdict,
            self.why,
            (self.first.diverged, self.second.diverged),
            self._times(tests) if verdict == "undecided" and p is not None else None,
        )

    def _times(self, tests: int) -> float | None:
        """Return how many times as much it takes until the cheaper of the two tests decides."""
        assert self.difference is not None
        distance = abs(self.difference.mean)
        gap = {
            "above": max(distance, self.margin - distance),
            "not_below": abs(self.difference.mean + self.margin),
            "equal": abs(distance - self.margin),
        }[self.claim.test]
        return times_to_detect(self.difference, gap, tests)

    def _verdict(self, p: float | None, p_equal: float | None) -> Verdict:
        if self.difference is None or p is None:
            return "undecided"
        if all(side.measured.method in self._no_better for side in self._sides):
            return "uninformative"
        differs, within = p < 1 - CONFIDENCE, p_equal is not None and p_equal < 1 - CONFIDENCE
        mean = self.difference.mean
        if self.claim.test == "equal":
            return "supported" if within else "contradicted" if differs else "undecided"
        if differs:
            limit = 0.0 if self.claim.test == "above" else -self.margin
            return "supported" if mean > limit else "contradicted"
        return "smaller than the margin" if within else "undecided"
