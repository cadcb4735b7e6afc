"""What the pages claim of this package is shown by something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paths import ROOT

COMPARISON = ROOT / "docs" / "comparison.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """The names of all tests, those of the contracts included."""
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "pml_extensions/testing").glob("*.py")]
    return {
        name
        for file in files
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below a heading, without the first two lines of each."""
    text = COMPARISON.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    lines = text.partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line]
    tables = [row for line, row in zip(filter(None, lines), cells, strict=True) if line[0] == "|"]
    return [row for row in tables if row[0] not in ("feature", "#") and "---" not in row[0]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_test_that_a_page_names_exists(page: Path, tests: set[str]) -> None:
    text = page.read_text(encoding="utf-8")
    missing = set(re.findall(r"`(test_\w+)`", text)) - tests
    assert not missing, f"{page.name} names tests that do not exist"


def test_the_comparison_has_every_feature_of_powerful_benchmarker() -> None:
    numbered = rows("Every feature of powerful-benchmarker")
    assert [int(row[0]) for row in numbered] == list(range(1, 52))
    for number, feature, here in numbered:
        ours = "`" in here or "](" in here
        assert ours or "left out" in here.lower(), f"{number} {feature}: neither shown nor left out"


def test_each_feature_side_by_side_is_shown_by_something() -> None:
    shown = {row[0]: row[2] for row in rows("Every feature of powerful-benchmarker")}
    compared = rows("Side by side")
    assert len(compared) >= 23
    for feature, here, *_ in compared:
        row = re.search(r" \((\d+)\)$", feature)
        by = shown[row[1]] if row else here
        assert re.search(r"`|\]\(", by) or here == "none published", feature
