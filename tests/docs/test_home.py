"""The first page, as the site shows it, and the order of the pages on losses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paths import DOCS, ROOT

TITLES = {
    page: title.strip('"')
    for title, page in re.findall(
        r"^ *- (.+): (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M
    )
}
ENTRIES = re.findall(
    r"^- \[\S+\]\((\S+\.md)\): ((?:.+\n?)(?:  .+\n?)*)",
    (DOCS / "README.md").read_text("utf-8"),
    re.M,
)


def words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w{4,}", text.lower())}


def test_the_entries_are_found() -> None:
    assert len(ENTRIES) > 25


@pytest.mark.parametrize(("page", "text"), ENTRIES, ids=[page for page, _ in ENTRIES])
def test_what_is_said_of_a_page_does_not_repeat_its_title(page: str, text: str) -> None:
    """The site shows a page's title for the name of its file."""
    first = re.split(r"\.\s", text)[0]
    assert not words(TITLES[page]) <= words(first), f"{TITLES[page]}: {first}"


@pytest.mark.parametrize(
    "page",
    sorted(set((DOCS / "losses").glob("*.md")) - {DOCS / "losses/README.md"}),
    ids=lambda page: page.stem,
)
def test_a_page_on_a_loss_shows_its_use_before_all_further_sections(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text("utf-8"), re.M)[0] == "Use"
