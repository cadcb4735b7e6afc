"""``report.html``: one page with everything in it; it asks for nothing from any network."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from importlib import resources

from PIL import Image

from reality_check.report.figures.plotting import ReportFigure, inline_svg
from reality_check.report.render._elements import Html, element, escape, join
from reality_check.report.render._html_tables import comparison, plain
from reality_check.report.render._trials import trials
from reality_check.report.sections.blocks import (
    Alarming,
    Block,
    Box,
    Bullets,
    Code,
    ComparisonTables,
    Facts,
    Filter,
    Folded,
    Gallery,
    Heading,
    Note,
    PlainTable,
    Section,
    Strong,
    Text,
    Trials,
    Verdict,
    WholeReport,
)

#: The page may use its own styles, its one script and images inside itself, nothing else.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{}'; "
    "form-action 'none'; base-uri 'none'"
)

#: Larger galleries are set into the page as WebP; the PNG stays in figures/.
_LARGE_GALLERY = 120_000
_WEBP = {"quality": 76, "method": 4}
#: Pixels of a point of a figure where there is room: letters of 7.5 points are then 12.5 high.
_PIXELS = 1.67


def report_html(title: str, sections: Sequence[Section]) -> str:
    """Return a page of sections under a title, with links to them."""
    tools = element(
        "p",
        element("button", "Unfold all", type="button", id="folds", hidden=""),
        element("button", "Dark theme", type="button", id="theme", hidden=""),
        class_="tools",
    )
    body = element(
        "body",
        element("a", "Skip to the report", href="#main", class_="skip"),
        element("header", element("h1", title), tools),
        _contents(sections),
        element("main", *map(_section, sections), id="main", tabindex="-1"),
        element(
            "footer", element("p", "Written by reality-check. This file is all there is to it.")
        ),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(title), body, lang="en") + "\n"


def _head(title: str) -> Html:
    files = resources.files("reality_check.report.render")
    style = files.joinpath("style.css").read_text("utf-8")
    script = files.joinpath("script.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return join(
        Html('<head><meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title} – reality check"),
        element("style", Html(style)),
        element("script", Html(script)),
        Html("</head>\n"),
    )


def _contents(sections: Sequence[Section]) -> Html:
    links = [
        element("li", element("a", section.heading, href=f"#{section.anchor}"))
        for section in sections
    ]
    return element("nav", element("ol", *links), aria_label="Contents", id="contents")


def _section(section: Section) -> Html:
    identifier = f"{section.anchor}-heading"
    attributes = {"id": section.anchor, "aria_labelledby": identifier}
    if section.kind:
        attributes["class_"] = f"box {section.kind}"
    head = element("h2", section.heading, id=identifier)
    return element("section", head, *_blocks(section.blocks), **attributes)


def _blocks(blocks: Sequence[Block]) -> list[Html]:
    return list(map(_block, blocks))


def _block(block: Block) -> Html:  # one line a kind of block
    match block:
        case str():
            return element("p", block)
        case Heading():
            return element("h3", block.text)
        case Bullets():
            lines = [element("li", *_line(line)) for line in block.lines]
            return element("ul", *lines) if lines else Html("")
        case Note():
            return element("p", *_line(block.text), class_="note")
        case Verdict(blocks=(str() as sentence,)):
            return element("p", sentence, class_="verdict")
        case Verdict():
            return element("div", *_blocks(block.blocks), class_="verdict")
        case Facts():
            pairs = (
                element("div", element("dt", name), element("dd", text))
                for name, text in block.pairs
            )
            return element("dl", *pairs, class_="facts")
        case PlainTable():
            return plain(block)
        case ComparisonTables():
            tables = (comparison(table, block.origins) for table in block.tables)
            return element("div", *tables, class_="tables")
        case Filter():
            return _filter(block)
        case Code():
            return element("pre", block.text, tabindex="0")
        case ReportFigure():
            return _figure(block)
        case Trials():
            return trials(block)
        case Gallery():
            return element("figure", _picture(block), element("figcaption", block.method))
        case WholeReport():
            path = f"{block.folder}/report.html"
            return element("p", "The whole report: ", element("a", path, href=path))
        case Box():
            return element("div", *_blocks(block.blocks), class_=f"box {block.kind}")
        case Folded():
            anchor = {"id": block.anchor} if block.anchor else {}
            title = element("summary", block.title)
            return element("details", title, *_blocks(block.blocks), **anchor)


def _line(text: Text) -> list[Html]:
    return [_piece(piece) for piece in ((text,) if isinstance(text, str) else text)]


def _piece(piece: str) -> Html:
    match piece:
        case Alarming():
            return element("strong", piece, class_="serious")
        case Strong():
            return element("strong", piece)
        case _:
            return escape(piece)


def _figure(figure: ReportFigure) -> Html:
    """A figure's panels as SVG in the page's colours, as many in a row as it has room for."""
    digest = hashlib.sha256(f"{figure.folder}{figure.stem}".encode()).hexdigest()
    panels = [
        element("div", Html(svg), style=f"--width: {_PIXELS * points:.0f}px")
        for svg, points in inline_svg(figure.files["svg"], f"f{digest[:8]}-")
    ]
    return element(
        "figure",
        element("div", *panels, class_="panels", role="img", aria_label=figure.alt),
        element("figcaption", figure.caption),
    )


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


def _filter(block: Filter) -> Html:
    """The controls of the comparison, which a script shows: without it they do nothing."""
    categories = list(dict.fromkeys(table.category for table in block.tables))
    metrics = list(dict.fromkeys(metric for table in block.tables for metric in table.metrics))
    search = element(
        "label",
        "Methods whose name contains ",
        Html('<input type="search" name="method" autocomplete="off" spellcheck="false">'),
    )
    return element(
        "form",
        search,
        _ticks("Categories", "category", categories),
        _ticks("Metrics", "metric", metrics),
        element("button", "Show all", type="reset"),
        element("output", aria_live="polite"),
        class_="filter",
        aria_label="Filter the comparison",
        hidden="",
    )


def _ticks(legend: str, name: str, values: Sequence[str]) -> Html:
    boxes = [
        element(
            "label",
            Html(f'<input type="checkbox" name="{name}" value="{escape(value)}" checked> '),
            value,
        )
        for value in values
    ]
    return element("fieldset", element("legend", legend), *boxes)
