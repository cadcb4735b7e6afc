"""The tests that pages name exist."""

from __future__ import annotations

import re

from support.paths import ROOT


def test_every_test_that_a_page_names_exists() -> None:
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "pml_extensions/testing").glob("*.py")]
    tests = {
        name
        for file in files
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        missing = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))) - tests
        assert not missing, f"{page.name} names tests that do not exist"
