"""The page of the papers' figures has each of them once, with its command and its picture."""

from __future__ import annotations

import re

from PIL import Image
from support.paths import ROOT

from reality_check.papers.figures import FIGURES

DOCS = ROOT / "docs"
SECTION = re.compile(
    r"^## .+\n\n<!-- run with: --quick -->\n```sh\nreality-check figure (\w+)\n```\n\n"
    r"!\[[^\]]{30,}\]\((images/\w+\.png)\)\n\n(?:.+\n)+\n\*\*Seen:\*\* ",
    re.M,
)


def test_every_figure_has_its_command_its_picture_and_what_is_seen() -> None:
    found = SECTION.findall((DOCS / "paper_figures.md").read_text(encoding="utf-8"))
    assert sorted(name for name, _ in found) == sorted(FIGURES)
    for name, path in found:
        assert path == f"images/{name}.png"
        with Image.open(DOCS / path) as image:
            image.load()
            assert image.width >= 1000
    assert {path.stem for path in (DOCS / "images").glob("*.png")} == set(FIGURES)
