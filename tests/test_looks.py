"""Looking at a campaign while it grows finds too much, unless the level is spent."""

from __future__ import annotations

from typing import Any

import pytest
from support.imports import import_file
from support.paths import ROOT


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_file(ROOT / "benchmarks" / "looks.py")


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
