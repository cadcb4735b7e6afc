"""Tests of an experiment's claims: each is supported, contradicted or neither.

A claim (:class:`reality_check.config.claims.Claim`) is locked with the experiment before it runs,
so the verdict follows from the numbers alone. Let d be the difference between the scores of two
methods (:meth:`Summary.estimates`) and m the claim's margin:

========= ==================== ======================================== ==================
test      supported            contradicted                             undecided
========= ==================== ======================================== ==================
above     d > 0                d < 0; certainly -m < d < m: "smaller    else
                               than the margin"
not_below d > -m               d < -m                                   else
equal     -m < d < m           d < -m or d > m                          else
========= ==================== ======================================== ==================

"d > 0" and the like mean that a two-sided test at 5 % is significant, and "-m < d < m" that both
one-sided tests are (TOST: Schuirmann 1987, "A comparison of the two one-sided tests procedure and
the power approach for assessing the equivalence of average bioavailability"). Holm's correction
covers all tests of an experiment, of both kinds. Estimates are over searches if searches are
repeated; with one search per method, a claim on two methods is undecided. Values of the same
networks (one method, aggregate against ensemble or one metric against another) are subtracted
before they are averaged. A claim of several comparisons is supported if all of them are; otherwise
it has the verdict that comes first in :data:`_ORDER`. A comparison is uninformative if neither side
is better than the untrained network. A run that diverged counts as 0; if all compared runs
diverged, the claim is undecided, since methods that all fail are not equally good.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from reality_check.config.claims import Claim, Measured
from reality_check.config.metrics import stage_of
from reality_check.config.schema import Experiment
from reality_check.report.summary import Evidence, Summary
from reality_check.statistics import (
    CONFIDENCE,
    Difference,
    estimate_difference,
    holm_of_known,
    t_quantile,
    times_to_detect,
)

Verdict = Literal[
    "supported", "contradicted", "smaller than the margin", "uninformative", "undecided"
]
#: A claim of several comparisons has the first of these verdicts that any comparison has.
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
        first: the side that the claim says is higher.
        second: the side with which ``first`` is compared.
        difference: first minus second, in the unit of the metric (mostly a fraction), with the
            interval that agrees with ``p``, or its own 95 % interval without a test; ``None`` if a
            side has no results, or every run diverged.
        p: two-sided p-value of the claim's test (see the table above) after Holm's correction;
            ``None`` without a test.
        p_equal: p-value for "the difference is beyond the margin" after Holm's correction; ``None``
            without a test, and for ``not_below``, which does not ask.
        verdict: verdict on this comparison.
        why: why there is no test; empty if there is one.
        diverged: number of diverged runs of the first and of the second side, which count as 0.
        times: for an undecided comparison, by which factor more searches (or trials, with all
            subsets of one search) would decide it in four of five experiments if the measured
            difference is the true one; ``None`` if no number would, and for decided comparisons.
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
    """A claim with its verdict, and the comparisons that it follows from."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(experiment: Experiment, summary: Summary) -> tuple[ClaimVerdict, ...]:
    """Decide all claims of an experiment.

    Args:
        experiment: the experiment as it was run, with its claims.
        summary: its results, whose records say which runs diverged.

    Returns:
        The verdicts in the order of the claims.
    """
    from reality_check.report.untrained import not_above_untrained

    not_better = not_above_untrained(summary)
    comparisons = [
        [
            _Comparison(claim, summary, not_better, _Side(first, summary), _Side(second, summary))
            for first, second in claim.comparisons()
        ]
        for claim in experiment.claims
    ]
    p_values = [p for pairs in comparisons for pair in pairs for p in (pair.p, pair.p_equal)]
    tests = sum(p is not None for p in p_values)
    corrected = iter(holm_of_known(p_values))
    verdicts = []
    for claim, pairs in zip(experiment.claims, comparisons, strict=True):
        findings = tuple(pair.finding(next(corrected), next(corrected), tests) for pair in pairs)
        verdict = min((finding.verdict for finding in findings), key=_ORDER.index)
        verdicts.append(ClaimVerdict(claim, verdict, findings))
    return tuple(verdicts)


class _Side:
    """One side of a comparison, with the rows of its results by the number of the run."""

    def __init__(self, measured: Measured, summary: Summary) -> None:
        self.measured = measured
        self.key = measured.category, measured.metric, measured.method
        self.rows = {row.reproduction: row for row in summary.rows.get(self.key, ())}
        #: The method and the stage that trained the networks of this side.
        self.networks = measured.method, stage_of(measured.category)
        runs = getattr(summary.records.get(measured.method), stage_of(measured.category), ())
        self._diverged_runs = {run.trial_index for run in runs if run.diverged is not None}

    @property
    def diverged(self) -> int:
        """Number of values that are 0 because their run diverged."""
        return sum(run in self._diverged_runs for run in self.rows)


class _Comparison:
    """A comparison with its p-values before Holm's correction."""

    def __init__(
        self,
        claim: Claim,
        summary: Summary,
        not_better: Collection[str],
        first: _Side,
        second: _Side,
    ) -> None:
        self.claim, self._summary = claim, summary
        #: Methods that are not better than the untrained network.
        self._not_better = not_better
        self._sides = self.first, self.second = first, second
        # Both are values of the same networks.
        self._paired = first.networks == second.networks
        if self._paired:
            common = sorted(first.rows.keys() & second.rows.keys())
            for side in self._sides:
                side.rows = {run: side.rows[run] for run in common}
        empty = self._why_empty()
        self.difference = None if empty else self._shifted(0.0)
        #: Why there is no test; empty if there is one.
        self.why = empty or self._why_untestable()
        score = summary.estimate(list(second.rows.values())).mean if self.difference else 0.0
        self.margin = claim.margin_at(score, first.measured.metric)
        self.p = None if self.why else self._p()
        self.p_equal = None if self.why or claim.test == "not_below" else self._p_equal()

    def _why_empty(self) -> str:
        """Return why there is nothing to compare; empty if there is something."""
        for side in self._sides:
            if not side.rows:
                return f"{side.measured.method} has no results"
        if any(side.diverged < len(side.rows) for side in self._sides):
            return ""
        methods = dict.fromkeys(side.measured.method for side in self._sides)
        return f"every run of {' and '.join(methods)} diverged"

    def _why_untestable(self) -> str:
        """Return why the difference cannot be tested; empty if it can."""
        losses = self.first.measured.method != self.second.measured.method
        if self._summary.evidence is Evidence.SETTINGS and losses:
            return "one search of each method cannot distinguish losses"
        if self.difference is not None and self.difference.p_value is None:
            return "no test with fewer than three reproductions whose values are finite"
        return ""

    def _shifted(self, shift: float) -> Difference:
        """Return the difference plus ``shift``; its test is of "the difference is ``-shift``"."""
        first, second = (self._summary.estimate(list(s.rows.values())) for s in self._sides)
        keys = [side.key for side in self._sides]
        shared = 1.0 if self._paired else self._summary.shared_draws(*keys)
        shifted = dataclasses.replace(first, mean=first.mean + shift)
        return estimate_difference(shifted, second, shared)

    def _p(self) -> float:
        """Return the p-value of the claim's test, before Holm's correction."""
        if self.claim.test == "equal":  # beyond the margin on either side
            beyond = self._one_sided(self.margin, -1), self._one_sided(-self.margin, 1)
            return min(1.0, 2 * min(beyond))
        p = self._shifted(0.0 if self.claim.test == "above" else self.margin).p_value
        assert p is not None
        return p

    def _p_equal(self) -> float:
        """Return the p-value for "the difference is beyond the margin", before the correction."""
        return max(self._one_sided(self.margin, 1), self._one_sided(-self.margin, -1))

    def _one_sided(self, shift: float, sign: int) -> float:
        """Return the p-value for "the difference plus ``shift`` does not have this sign"."""
        difference = self._shifted(shift)
        assert difference.p_value is not None
        half = difference.p_value / 2
        return half if sign * difference.mean > 0 else 1 - half

    def finding(self, p: float | None, p_equal: float | None, tests: int) -> Finding:
        """Return the finding that follows from the corrected p-values.

        Args:
            p: corrected p-value of the claim's test.
            p_equal: corrected p-value of the test for equality.
            tests: number of tests of the experiment, which the correction covers.
        """
        verdict = self._verdict(p, p_equal)
        return Finding(
            self.first.measured,
            self.second.measured,
            self._corrected(p, tests),
            p,
            p_equal,
            verdict,
            self.why,
            (self.first.diverged, self.second.diverged),
            self._times(tests) if verdict == "undecided" and p is not None else None,
        )

    def _corrected(self, p: float | None, tests: int) -> Difference | None:
        """Return the difference with the interval that agrees with its corrected p-value.

        Intervals at Bonferroni's level all hold together. That of a difference which only a later
        step of Holm's correction finds is as much narrower as that step is more lenient. So an
        interval excludes what is tested (0, or the margin) exactly if ``p`` is below 0.05. Without
        a test, the difference keeps its own 95 % interval.
        """
        found = self.difference
        if not (found and found.error and found.degrees) or self.p is None or p is None:
            return found
        level = 1 - CONFIDENCE
        share = self.p / p if p < level <= tests * self.p else 1 / tests
        reach = t_quantile(found.degrees, 1 - level * share)
        return dataclasses.replace(found, half_width=reach * found.error)

    def _times(self, tests: int) -> float | None:
        """Return by which factor more units are needed until the claim is decided.

        It may be decided by its own test, or by that of equality; the cheaper one counts.
        """
        assert self.difference is not None
        distance = abs(self.difference.mean)
        gap = {
            "above": max(distance, self.margin - distance),
            "not_below": abs(self.difference.mean + self.margin),
            "equal": abs(distance - self.margin),
        }[self.claim.test]
        return times_to_detect(self.difference, gap, tests)

    def _verdict(self, p: float | None, p_equal: float | None) -> Verdict:
        """Return the verdict by the table in the docstring of this module."""
        if self.difference is None or p is None:
            return "undecided"
        if all(side.measured.method in self._not_better for side in self._sides):
            return "uninformative"
        differs, within = p < 1 - CONFIDENCE, p_equal is not None and p_equal < 1 - CONFIDENCE
        mean = self.difference.mean
        if self.claim.test == "equal":
            if within:
                return "supported"
            return "contradicted" if differs else "undecided"
        if differs:
            limit = 0.0 if self.claim.test == "above" else -self.margin
            return "supported" if mean > limit else "contradicted"
        return "smaller than the margin" if within else "undecided"
