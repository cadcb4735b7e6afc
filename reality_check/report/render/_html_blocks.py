"""Parts of the report's page: sections, lists, folds, figures, galleries."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from reality_check.report.figures.galleries import NOTE, Gallery
from reality_check.report.figures.overview import DrawnFigure
from reality_check.report.figures.plotting import inline_svg
from reality_check.report.render._elements import Html, element, escape
from reality_check.report.render._html_tables import plain
from reality_check.report.sections import Block, Bullets, Folded, Note, Section
from reality_check.report.sections.overview import PlainTable

#: Larger galleries are set into the page as WebP; the PNG stays in figures/.
_LARGE_GALLERY = 120_000
_WEBP = {"quality": 76, "method": 4}


@dataclass(frozen=True)
class Part:
    """A section of the page, and its line in the contents."""

    anchor: str
    heading: str
    html: Html


def part(anchor: str, heading: str, *children: str, kind: str = "") -> Part:
    """Return a section under a heading of the second level.

    Args:
        anchor: its id on the page.
        heading: a few words.
        children: texts and HTML.
        kind: its class, where it has one.
    """
    identifier = f"{anchor}-heading"
    attributes = {"id": anchor, "aria_labelledby": identifier} | ({"class_": kind} if kind else {})
    head = element("h2", heading, id=identifier)
    return Part(anchor, heading, element("section", head, *children, **attributes))


def contents(parts: Sequence[Part]) -> Html:
    """Return the links to all sections."""
    links = [
        element("li", element("a", part.heading, href=f"#{part.anchor}"))
        for part in parts
    ]  # fmt: skip
    return element("nav", element("ol", *links), aria_label="Contents", id="contents")


def bullets(lines: Sequence[str]) -> Html:
    """Return a list; nothing for no lines."""
    return element("ul", *(element("li", line) for line in lines)) if lines else Html("")


def folded(summary_line: str, *children: str) -> Html:
    """Return what the reader opens when wanted."""
    return element("details", element("summary", summary_line), *children)


def figure(drawn: DrawnFigure, prefix: str = "") -> Html:
    """Return a figure as SVG in the page's colours.

    Args:
        drawn: the figure.
        prefix: sets its ids apart where a figure of that name is on the page more than once.
    """
    unique = f"{prefix}f{hashlib.sha256(drawn.stem.encode()).hexdigest()[:8]}-"
    picture = Html(inline_svg(drawn.files["svg"], unique, escape(drawn.alt)))
    # A scrollable region is reached with the keyboard, and so needs a name of its own.
    label = f"Figure: {drawn.caption}"
    return element(
        "figure",
        element("div", picture, class_="scroll", tabindex="0", role="group", aria_label=label),
        element("figcaption", drawn.caption),
    )


def section(shown: Section) -> Part:
    """Return a section that Markdown and HTML share."""
    return part(shown.anchor, shown.heading, *map(block, shown.blocks))


def block(shown: Block) -> Html:
    """Return one block of a section."""
    match shown:
        case str():
            return element("p", shown)
        case Note():
            return element("p", shown.text, class_="note")
        case Bullets():
            return bullets(list(shown.lines))
        case PlainTable():
            return plain(shown)
        case DrawnFigure():
            return figure(shown)
        case Folded():
            return folded(shown.title, *map(block, shown.blocks))


def galleries(shown: Sequence[Gallery]) -> list[Part]:
    """Return the section of the galleries; none where there are none."""
    if not shown:
        return []
    pictures = [
        element("figure", _picture(gallery), element("figcaption", gallery.method))
        for gallery in shown
    ]
    return [part("galleries", "Nearest neighbours", element("p", NOTE), *pictures)]


def _picture(gallery: Gallery) -> Html:
    kind, content = _compact(gallery.png)
    source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Html(f'<img src="{source}" alt="{escape(gallery.alt)}">')


def _compact(png: bytes) -> tuple[str, bytes]:
    """Photographs as WebP, so that a page with many galleries stays small enough to send."""
    if len(png) <= _LARGE_GALLERY:
        return "png", png
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").save(stream, "WEBP", **_WEBP)
    return "webp", stream.getvalue()
