"""The landing page, the navigation, and the order of the pages on losses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.paths import DOCS, ROOT

GROUPS: list[dict[str, Any]] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
HOME = (DOCS / "README.md").read_text("utf-8")
#: A link that the site shows by the page's title, and what is said of it: up to the next link.
ENTRIES = re.findall(r"\[\S+\]\((\S+\.md)\) ([^\[]+)", HOME)


def titles(entries: Any) -> Iterator[tuple[str, str]]:
    """Page and title of the navigation, at any depth; pages without a title of their own too."""
    for entry in entries:
        for title, below in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if isinstance(below, str):
                yield below, title
            else:
                yield from titles(below)


TITLES = dict(titles(GROUPS))


def words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w{4,}", text.lower())}


def test_every_page_is_in_the_navigation() -> None:
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert written == {page for page in TITLES if not page.startswith(("api/", "CHANGELOG"))}


def test_the_navigation_has_few_groups_of_few_pages() -> None:
    groups = [below for entry in GROUPS for below in entry.values() if isinstance(below, list)]
    assert 1 < len(groups) <= 5
    assert max(len(group) for group in groups) <= 8


def test_the_landing_page_has_few_links() -> None:
    assert 8 <= len(ENTRIES) <= len(re.findall(r"\]\([^)]+\.md", HOME)) <= 14


@pytest.mark.parametrize(("page", "text"), ENTRIES, ids=[page for page, _ in ENTRIES])
def test_what_is_said_of_a_page_does_not_repeat_its_title(page: str, text: str) -> None:
    """The site shows a page's title for the name of its file."""
    assert not words(TITLES[page]) <= words(text), f"{TITLES[page]}: {text}"


@pytest.mark.parametrize(
    "page",
    sorted(set((DOCS / "losses").glob("*.md")) - {DOCS / "losses/README.md"}),
    ids=lambda page: page.stem,
)
def test_a_page_on_a_loss_shows_its_use_before_all_further_sections(page: Path) -> None:
    assert re.findall(r"^## (.+)$", page.read_text("utf-8"), re.M)[0] == "Use"
