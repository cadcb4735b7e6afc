"""Verdicts on synthetic results, checked against scipy's tests and by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reality_check.config import Experiment, compose
from reality_check.config.claims import Claim
from reality_check.config.metrics import PRIMARY
from reality_check.papers.claim_tests import ClaimVerdict, Finding, judge
from reality_check.report.summary import Summary
from reality_check.results import ExperimentResults, MethodResults, ResultRow, TrialRecord

#: Ten reproductions around 0 with a standard deviation of about 0.7 points.
NOISE = [-0.011, -0.007, -0.004, -0.002, -0.001, 0.001, 0.002, 0.005, 0.007, 0.010]
Samples = Mapping[str | tuple[str, str, str], Sequence[float]]


def around(mean: float, scale: float = 1.0, turn: int = 0) -> list[float]:
    """Ten values of that mean; ``turn`` puts them in another order."""
    return [mean + scale * value for value in (*NOISE[turn:], *NOISE[:turn])]


def experiment(*claims: Mapping[str, Any], **changes: Any) -> Experiment:
    plain = [
        {"name": f"claim_{number}", "source": "000", "text": "It is so", "margin": 1, **claim}
        for number, claim in enumerate(claims)
    ]
    return compose(
        {
            "name": "made_up",
            "dataset": "glyphs",
            "model": "conv4",
            "protocol": {
                "base": "quick_one_search",
                "final_metrics": ["separability", "binary_precision_at_1"],
            },
            "methods": [{"base": "contrastive", "name": name} for name in "abc"],
            "claims": plain,
            **changes,
        }
    )


def rows(samples: Samples) -> Iterable[ResultRow]:
    for key, values in samples.items():
        method, category, metric = (key, "aggregate", PRIMARY) if len(key) == 1 else key
        for number, value in enumerate(values):
            yield ResultRow("made_up", method, category, number, metric, value)


def measured(samples: Samples, *methods: MethodResults) -> ExperimentResults:
    return ExperimentResults("made_up", "quick", "mlrc", True, methods, tuple(rows(samples)))


def verdict(claim: Mapping[str, Any], samples: Samples) -> ClaimVerdict:
    (judged,) = judge(experiment({"pairs": [["a", "b"]], **claim}), Summary(measured(samples)))
    return judged


# The standard error of a difference of two such samples is 0.29 points, the interval +-0.61.
@pytest.mark.parametrize(
    ("test", "margin", "difference", "expected"),
    [
        ("above", 1, 0.009, "supported"),
        ("above", 1, 0.0055, "undecided"),
        ("above", 1, 0.0, "smaller than the margin"),  # certainly within a point
        ("above", 1, 0.002, "smaller than the margin"),
        ("above", 0.4, 0.0, "undecided"),  # not certainly within so little
        ("above", 1, -0.0055, "undecided"),
        ("above", 1, -0.02, "contradicted"),
        ("not_below", 1, -0.003, "supported"),
        ("not_below", 1, 0.02, "supported"),
        ("not_below", 1, -0.007, "undecided"),
        ("not_below", 1, -0.013, "undecided"),
        ("not_below", 1, -0.017, "contradicted"),
        ("not_below", 2, -0.013, "supported"),
        ("equal", 1, 0.0, "supported"),
        ("equal", 1, -0.002, "supported"),
        ("equal", 1, 0.006, "undecided"),
        ("equal", 1, 0.012, "undecided"),
        ("equal", 1, 0.02, "contradicted"),
        ("equal", 1, -0.02, "contradicted"),
    ],
)
def test_what_each_test_says_of_a_difference(
    test: str, margin: float, difference: float, expected: str
) -> None:
    samples = {"a": around(0.3 + difference), "b": around(0.3, turn=3)}
    judged = verdict({"test": test, "margin": margin}, samples)
    assert judged.verdict == expected
    assert (judged.findings[0].times is None) == (expected != "undecided")


@pytest.mark.parametrize(
    ("test", "margin", "difference", "gap"),
    [
        ("above", 1, 0.0055, 0.0055),  # either that it is above 0, ...
        ("above", 0.4, 0.0005, 0.0035),  # ... or that it is within the margin
        ("not_below", 1, -0.007, 0.003),
        ("equal", 1, 0.006, 0.004),
    ],
)
def test_what_is_undecided_says_what_would_decide_it(
    test: str, margin: float, difference: float, gap: float
) -> None:
    """So many times as many reproductions find it in 80 % of experiments."""
    samples = {"a": around(0.3 + difference), "b": around(0.3, turn=3)}
    (judged,) = verdict({"test": test, "margin": margin}, samples).findings
    assert judged.verdict == "undecided"
    assert judged.times is not None
    size = round(10 * judged.times)
    deviation = np.std(NOISE, ddof=1)
    first, second = np.random.default_rng(0).normal(0, deviation, (2, 4000, size))
    tests = 1 if test == "not_below" else 2  # corrected for both
    p_values = stats.ttest_ind(first + gap, second, axis=1, equal_var=False).pvalue
    assert (p_values < 0.05 / tests).mean() == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("test", "tested"), [("above", 0), ("not_below", -0.01), ("equal", 0.01)])
def test_an_interval_excludes_what_is_tested_exactly_if_p_is_below_5_percent(
    test: str, tested: float
) -> None:
    """A later step of Holm's correction finds some of the differences that Bonferroni's misses."""
    found, widths = set(), set()
    for beyond in np.linspace(0.004, 0.012, 41):
        samples = {"a": around(0.3 + tested), "b": around(0.2, turn=3)}
        samples["c"] = around(0.3 - beyond, turn=3)
        pairs = {"test": test, "pairs": [["a", "b"], ["a", "c"]]}
        finding = verdict(pairs, samples).findings[1]
        assert finding.p is not None
        assert finding.difference is not None
        assert finding.difference.low is not None
        assert (finding.difference.low > tested) == (finding.p < 0.05)
        found.add(finding.p < 0.05)
        widths.add(round(100 * (finding.difference.half_width or 0), 6))
    assert found == {True, False}
    assert len(widths) == 2


def test_p_values_of_margins_are_one_sided_tests_against_them() -> None:
    a, b = around(0.296), around(0.3, scale=2, turn=4)[:7]

    def p(shift: float, alternative: str) -> float:
        moved = [value + shift for value in a]
        return float(stats.ttest_ind(moved, b, equal_var=False, alternative=alternative).pvalue)

    equal = verdict({"test": "equal"}, {"a": a, "b": b}).findings[0]
    within = max(p(0.01, "greater"), p(-0.01, "less"))
    beyond = min(1, 2 * min(p(0.01, "less"), p(-0.01, "greater")))
    above = float(stats.ttest_ind(a, b, equal_var=False).pvalue)
    other = verdict({}, {"a": a, "b": b}).findings[0]
    for tested, p_equal, rest in (
        (equal.p, equal.p_equal, beyond),
        (other.p, other.p_equal, above),
    ):
        first, second = sorted([within, rest])
        corrected = {first: min(1, 2 * first), second: max(second, min(1, 2 * first))}
        assert p_equal == pytest.approx(corrected[within])
        assert tested == pytest.approx(corrected[rest])
    below = verdict({"test": "not_below"}, {"a": a, "b": b}).findings[0]
    assert below.p == pytest.approx(2 * p(0.01, "greater"))
    assert below.p_equal is None


def test_holm_counts_all_tests_of_the_experiment() -> None:
    samples = {"a": around(0.307), "b": around(0.3, turn=3)}
    welch = stats.ttest_ind(samples["a"], samples["b"], equal_var=False).pvalue
    pairs = {"pairs": [["a", "b"]]}
    claims = [pairs | {"test": test} for test in ("above", "not_below", "not_below")]
    judged = judge(experiment(*claims), Summary(measured(samples)))
    # Four tests: that the first is above, and that it is within the margin; twice not_below, which
    # does not ask for the latter and has the smallest p-values. Then the former is one of two.
    assert judged[0].findings[0].p == pytest.approx(2 * welch)
    assert [finding.verdict for finding in judged] == ["undecided", "supported", "supported"]


def test_a_claim_of_several_comparisons_needs_all_and_falls_with_one() -> None:
    both = {"pairs": [["a", "b"], ["a", "c"]]}
    samples = {"a": around(0.33), "b": around(0.3, turn=3)}
    for mean, expected in ((0.31, "supported"), (0.326, "undecided"), (0.36, "contradicted")):
        judged = verdict(both, {**samples, "c": around(mean, turn=5)})
        assert judged.verdict == expected
        assert judged.findings[0].verdict == "supported"
        assert judged.findings[1].verdict == expected


def test_ensemble_and_aggregate_are_of_the_same_networks_and_complete_is_not() -> None:
    keys = {category: ("a", category, PRIMARY) for category in ("aggregate", "ensemble")}
    samples = {keys["aggregate"]: around(0.3), keys["ensemble"]: around(0.31)[::-1]}
    samples["a", "complete", PRIMARY] = around(0.31)[::-1]
    claim = {"pairs": [["a", "a"]], "than": {"category": "aggregate"}}
    finding = verdict(claim | {"categories": ["ensemble"]}, samples).findings[0]
    other = verdict(claim | {"categories": ["complete"]}, samples).findings[0]
    values = list(samples.values())
    # Each is one of two tests, and the one with the smaller p-value.
    assert finding.p == pytest.approx(2 * stats.ttest_rel(values[1], values[0]).pvalue)
    welch = stats.ttest_ind(values[2], values[0], equal_var=False)
    assert other.p == pytest.approx(2 * welch.pvalue)


def test_a_margin_is_a_part_of_the_score_of_the_second() -> None:
    claim = Claim(name="c", source="s", text="t", pairs=[("a", "b")])
    assert claim.margin_at(0.2, PRIMARY) == pytest.approx(0.01)
    assert claim.margin_at(-3.0, "separability") == pytest.approx(0.15)
    points = claim.model_copy(update={"margin": 2})
    assert points.margin_at(0.2, PRIMARY) == pytest.approx(0.02)
    assert points.margin_at(0.2, "separability") == 2


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ({}, "a has no results"),
        ({"a": around(0.3)}, "b has no results"),
        ({"a": around(0.3), "b": [0.2]}, "fewer than three reproductions"),
        ({"a": around(0.3), "b": [0.2, float("nan")]}, "whose values are finite"),
    ],
)
def test_what_was_not_measured_cannot_tell(samples: Samples, why: str) -> None:
    judged = verdict({}, samples)
    assert judged.verdict == judged.findings[0].verdict == "undecided"
    assert why in judged.findings[0].why
    assert judged.findings[0].p is None


def test_comparisons_without_results_do_not_count_for_holm() -> None:
    samples = {"a": around(0.307), "b": around(0.3, turn=3)}
    pairs = [["a", "b"], ["a", "c"]]
    judged = verdict({"pairs": pairs}, samples)
    assert judged.verdict == "undecided"
    assert judged.findings[0].p == pytest.approx(verdict({}, samples).findings[0].p)


def test_runs_without_spread_are_certain() -> None:
    assert verdict({}, {"a": [0.31] * 5, "b": [0.3] * 5}).verdict == "supported"
    equal = {"a": [0.3] * 5, "b": [0.3] * 5}
    assert verdict({}, equal).verdict == "smaller than the margin"
    assert verdict({"test": "equal"}, {"a": [0.3] * 5, "b": [0.3] * 5}).verdict == "supported"


def lost(method: str, *runs: int, stage: str = "reproductions") -> MethodResults:
    """A method of which these of five runs diverged."""
    records = tuple(
        TrialRecord(n, "complete", diverged="NaN" if n in runs else None) for n in range(5)
    )
    parts: dict[str, Any] = {stage: records}
    return MethodResults(method, "L", **parts)


def judged(
    claim: Mapping[str, Any], samples: Samples, *methods: MethodResults
) -> tuple[str, Finding]:
    planned = experiment({"pairs": [["a", "b"]], **claim})
    (verdict,) = judge(planned, Summary(measured(samples, *methods)))
    return verdict.verdict, verdict.findings[0]


@pytest.mark.parametrize("test", ["above", "not_below", "equal"])
def test_methods_that_always_diverged_cannot_be_told(test: str) -> None:
    zeros = {"a": [0.0] * 5, "b": [0.0] * 5}
    gone = [lost(name, *range(5)) for name in "ab"]
    outcome, finding = judged({"test": test}, zeros, *gone)
    assert (outcome, finding.why) == ("undecided", "every run of a and b diverged")
    assert (finding.difference, finding.p, finding.p_equal) == (None, None, None)
    assert finding.diverged == (5, 5)
    outcome, finding = judged({"test": test}, zeros, gone[0], lost("b", 0, 1, 2, 3))
    assert outcome == {"above": "smaller than the margin"}.get(test, "supported"), (
        "one run did score 0"
    )


def test_one_side_that_always_diverged_is_below() -> None:
    samples = {"a": [0.3, 0.31, 0.3, 0.29, 0.3], "b": [0.0] * 5}
    outcome, finding = judged({}, samples, lost("a"), lost("b", *range(5)))
    assert (outcome, finding.diverged, finding.why) == ("supported", (0, 5), "")


def test_what_diverged_is_counted_among_the_runs_that_are_compared() -> None:
    samples = {
        ("a", "complete", PRIMARY): [0.3, 0.0, 0.3, 0.0],
        ("b", "complete", PRIMARY): [0.2, 0.2, 0.0],
    }
    runs = lost("a", 1, 3, 4, stage="final"), lost("b", 2, stage="reproductions")
    _, finding = judged({"categories": ["complete"]}, samples, *runs)
    assert finding.diverged == (2, 0), "of a run 4 has no result; of b it was a reproduction"
