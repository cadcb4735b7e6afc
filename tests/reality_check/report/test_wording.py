"""How numbers are written."""

from __future__ import annotations

import math

import pytest

from reality_check.report.sections.paper_scores import _difference
from reality_check.report.wording import percent, points, rounded, true_minus
from reality_check.statistics import over_searches


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(-1e-6), "0.00"),
        (percent(-0.0), "0.00"),
        (percent(-0.00006), "-0.01"),
        (percent(-0.004, 0), "0"),
        (percent(0.2525), "25.25"),
        (rounded(-1e-5, 3), "0.000"),
        (rounded(-0.0006, 3), "-0.001"),
        (points(-1e-6), "0.00"),
        (points(-0.0125), "−1.25"),
        (points(-0.1), "−10.00"),
        (points(1e-6, plus=True), "0.00"),
        (points(-1e-6, plus=True), "0.00"),
        (points(0.02, plus=True), "+2.00"),
        (true_minus(-0.004), "0.00"),
        (true_minus(-0.004, 3), "−0.004"),
        (true_minus(0.0, plus=True), "0.00"),
        (rounded(-100.0, 0), "-100"),
        (rounded(math.nan, 2, plus=True), "not finite"),
        (percent(math.inf), "not finite"),
        (percent(None), "—"),
    ],
)
def test_a_rounded_zero_has_no_sign(text: str, expected: str) -> None:
    assert text == expected


def test_a_difference_from_a_published_figure_has_its_sign() -> None:
    assert _difference("precision_at_1", (50.0,), over_searches([[0.4999999]])) == "0.00"
    assert _difference("precision_at_1", (50.0,), over_searches([[0.51]])) == "+1.00"
    assert _difference("separability", (1.0,), over_searches([[0.99999]])) == "0.000"
    assert _difference("separability", (1.0,), over_searches([[0.875]])) == "−0.125"
