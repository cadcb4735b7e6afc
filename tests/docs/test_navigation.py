"""The navigation of the site."""

from __future__ import annotations

import re

from support.paths import DOCS, ROOT


def test_every_page_is_in_the_navigation() -> None:
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r"[\w/]+\.md", navigation))
    losses = {page for page in written if page.startswith("losses/")}  # hooks.py adds them
    assert written - losses == {
        page for page in listed if not page.startswith(("api/", "losses/", "CHANGELOG"))
    }


def test_no_page_is_longer_than_2000_words() -> None:
    long = {path.stem for path in DOCS.rglob("*.md") if len(path.read_text().split()) > 2000}
    assert long == {"calibration", "replications"}
