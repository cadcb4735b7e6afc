"""Looking at a campaign while it grows: the published levels, and small errors."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import multivariate_normal, norm
from support.imports import import_file
from support.paths import ROOT


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_file(ROOT / "benchmarks" / "looks.py")


def test_five_looks_have_the_published_boundaries(looks: Any) -> None:
    """Those of Lan and DeMets, as every table of the O'Brien-Fleming-like function has them."""
    found = [norm.isf(p / 2) for p in looks.nominal_levels([0.2, 0.4, 0.6, 0.8, 1.0])]
    assert found == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=6e-4)


def test_two_looks_spend_the_level(looks: Any) -> None:
    ends = [norm.isf(p / 2) for p in looks.nominal_levels([0.3, 1.0], level=0.01)]
    both = multivariate_normal(cov=[[1, 0.3**0.5], [0.3**0.5, 1]])
    assert 1 - both.cdf(ends, lower_limit=[-z for z in ends]) == pytest.approx(0.01, abs=1e-5)


def test_looking_often_finds_too_much_and_spending_the_level_does_not(looks: Any) -> None:
    methods = looks.read(ROOT / "benchmarks" / "banks" / "caltech101_lite0.csv")
    kind = looks.searches(4, 6, 8, 10)
    draw = looks.np.random.default_rng(0)
    family = [kind.draw(methods[0], 400, draw) for _ in range(4)]
    single, any_pair, naive = (
        float(text) for text in looks.false_findings(family, kind).split(",")
    )
    assert max(single, any_pair) < 5 < 7 < naive
    other = [kind.draw(methods[2], 400, draw) for _ in range(4)]
    drawn = {methods[0].name: family, methods[2].name: other}
    cell = looks.power(drawn, kind, methods[0], methods[2])
    once, growing, spent = (int(text) for text in cell.partition(":")[2].split(","))
    assert growing >= once - 3
    assert spent < 95
