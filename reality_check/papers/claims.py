"""What became of an experiment's claims: confirmed, not confirmed, or cannot tell.

A claim (:class:`reality_check.config.claims.Claim`) is locked with the experiment before it runs,
so the verdict follows from the numbers alone. With d the difference of two means over
reproductions and m the claim's margin:

========= ==================== ===================================== ==================
test      confirmed            not confirmed                         cannot tell
========= ==================== ===================================== ==================
above     d > 0                d < 0, or certainly -m < d < m        else
not_below d > -m               d < -m                                else
equal     -m < d < m           d < -m or d > m                       else
========= ==================== ===================================== ==================

"d > 0" and the like mean that a two-sided test at 5 % says so after Holm's correction over all
comparisons of the experiment; "-m < d < m" that both one-sided tests do (TOST: Schuirmann 1987, "A
comparison of the two one-sided tests procedure and the power approach for assessing the equivalence
of average bioavailability"), corrected over all comparisons likewise. The tests are Welch's, as in
the report; paired where both values are of the same networks (one method, aggregate against
ensemble or one metric against another). A claim of several comparisons is confirmed where all are,
and not confirmed where one is not. A run that diverged counts as 0; where none but such runs are
compared, nobody can tell: methods that all fail are not equally good.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reality_check.config.claims import Claim, Measured
from reality_check.config.metrics import is_fraction
from reality_check.config.schema import Experiment
from reality_check.report.statistics import (
    CONFIDENCE,
    Difference,
    holm,
    paired_difference,
    welch_difference,
)
from reality_check.results import MethodResults, ResultRow

Verdict = Literal["confirmed", "not confirmed", "cannot tell"]
#: Values by reproduction.
Values = Mapping[int, float]


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
    """

    first: Measured
    second: Measured
    difference: Difference | None
    p: float | None
    p_equal: float | None
    verdict: Verdict
    why: str = ""
    diverged: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim with its verdict and the comparisons it follows from."""

    claim: Claim
    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(
    experiment: Experiment, rows: Iterable[ResultRow], methods: Iterable[MethodResults] = ()
) -> tuple[ClaimVerdict, ...]:
    """Decide all claims of an experiment.

    Args:
        experiment: with the claims, as it was run.
        rows: its results.
        methods: the records of its runs, which say which of them diverged.

    Returns:
        In the order of the claims.
    """
    values, lost = _by_place(rows), _diverged(methods)
    comparisons = [
        _Comparison(claim, *(_Side(place, values, lost) for place in places))
        for claim in experiment.claims
        for places in claim.comparisons()
    ]
    corrected = zip(
        _corrected([one.p for one in comparisons]),
        _corrected([one.p_equal for one in comparisons]),
        strict=True,
    )
    findings = iter([one.finding(*both) for one, both in zip(comparisons, corrected, strict=True)])
    verdicts = []
    for claim in experiment.claims:
        own = tuple(itertools.islice(findings, len(list(claim.comparisons()))))
        verdicts.append(ClaimVerdict(claim, _together([one.verdict for one in own]), own))
    return tuple(verdicts)


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    if "not confirmed" in verdicts:
        return "not confirmed"
    return "cannot tell" if "cannot tell" in verdicts else "confirmed"


def _by_place(rows: Iterable[ResultRow]) -> dict[Measured, dict[int, float]]:
    values: dict[Measured, dict[int, float]] = {}
    for row in rows:
        place = Measured(row.method, row.category, row.metric)
        values.setdefault(place, {})[row.reproduction] = row.value
    return values


def _diverged(methods: Iterable[MethodResults]) -> dict[tuple[str, bool], set[int]]:
    """The runs that diverged, by method and whether they are of the category complete."""
    return {
        (method.name, complete): {run.trial_index for run in runs if run.diverged is not None}
        for method in methods
        for complete, runs in ((False, method.reproductions), (True, method.final))
    }


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


class _Side:
    """One side of a comparison."""

    def __init__(
        self,
        place: Measured,
        values: Mapping[Measured, Values],
        diverged: Mapping[tuple[str, bool], Collection[int]],
    ) -> None:
        self.place = place
        self.values = values.get(place, {})
        self._diverged = diverged.get(self.runs, ())

    @property
    def runs(self) -> tuple[str, bool]:
        """Which networks: the method, and whether they are of the category complete."""
        return self.place.method, self.place.category == "complete"

    @property
    def lost(self) -> int:
        """How many of the values are zeros of runs that diverged."""
        return sum(run in self._diverged for run in self.values)

    def restrict(self, runs: Collection[int]) -> None:
        """Keep the values of these runs only, in the order of their numbers."""
        self.values = {run: self.values[run] for run in sorted(runs)}


class _Comparison:
    """One comparison before the correction."""

    def __init__(self, claim: Claim, first: _Side, second: _Side) -> None:
        self.claim, self.first, self.second = claim, first, second
        self._paired = first.runs == second.runs
        if self._paired:
            for side, other in ((first, second), (second, first)):
                side.restrict(side.values.keys() & other.values.keys())
        metric = first.place.metric
        self.margin = claim.margin / 100 if is_fraction(metric) else claim.margin
        self.difference = None if self._nothing() else self._shifted(0.0)
        tests = self.difference is not None and self.difference.p_value is not None
        self.p = self._p() if tests else None
        self.p_equal = self._p_equal() if tests and claim.test != "not_below" else None

    def _nothing(self) -> str:
        """Why there is nothing to compare; empty where there is."""
        sides = (self.first, self.second)
        for side in sides:
            if not side.values:
                return f"{side.place.method} has no results"
        if any(side.lost < len(side.values) for side in sides):
            return ""
        methods = dict.fromkeys(side.place.method for side in sides)
        return f"every run of {' and '.join(methods)} diverged"

    def _shifted(self, shift: float) -> Difference:
        """The difference plus a number, so that its test against 0 is one against minus that."""
        compare = paired_difference if self._paired else welch_difference
        a, b = self.first.values.values(), self.second.values.values()
        return compare([value + shift for value in a], list(b))

    def _p(self) -> float:
        if self.claim.test == "above":
            return _two_sided(self._shifted(0.0))
        if self.claim.test == "not_below":
            return _two_sided(self._shifted(self.margin))
        # Of "equal": that the difference is within the margin, against beyond it on either side.
        beyond = [_below(self._shifted(self.margin)), _above(self._shifted(-self.margin))]
        return min(1.0, 2 * min(beyond))

    def _p_equal(self) -> float:
        return max(_above(self._shifted(self.margin)), _below(self._shifted(-self.margin)))

    def finding(self, p: float | None, p_equal: float | None) -> Finding:
        """The comparison with its corrected p-values and what follows from them."""
        return Finding(
            self.first.place,
            self.second.place,
            self.difference,
            p,
            p_equal,
            self._verdict(p, p_equal),
            self._why(),
            (self.first.lost, self.second.lost),
        )

    def _verdict(self, p: float | None, p_equal: float | None) -> Verdict:
        if self.difference is None or p is None:
            return "cannot tell"
        differs, within = p < 1 - CONFIDENCE, p_equal is not None and p_equal < 1 - CONFIDENCE
        mean = self.difference.mean
        if self.claim.test == "equal":
            return "confirmed" if within else "not confirmed" if differs else "cannot tell"
        if differs:
            limit = 0.0 if self.claim.test == "above" else -self.margin
            return "confirmed" if mean > limit else "not confirmed"
        return "not confirmed" if within else "cannot tell"

    def _why(self) -> str:
        if self.difference is not None and self.difference.p_value is None:
            return "no test with fewer than three reproductions whose values are finite"
        return self._nothing()


def _two_sided(difference: Difference) -> float:
    assert difference.p_value is not None
    return difference.p_value


def _above(difference: Difference) -> float:
    """One-sided p-value for "the mean is not above 0"."""
    half = _two_sided(difference) / 2
    return half if difference.mean > 0 else 1 - half


def _below(difference: Difference) -> float:
    """One-sided p-value for "the mean is not below 0"."""
    half = _two_sided(difference) / 2
    return half if difference.mean < 0 else 1 - half
