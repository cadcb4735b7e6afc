"""``report.html``: a self-contained page, which loads nothing over the network.

The HTML is in the templates next to this file: ``page.html.j2``, and ``blocks.html.j2`` with a
macro for each kind of block, named like its class.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from reality_check.report.figures.plotting import ReportFigure, inline_svg
from reality_check.report.sections.blocks import Alarming, Block, Section, Strong
from reality_check.report.tables import CLOSE_MARK
from reality_check.report.wording import NOTHING

#: PNG files of more bytes than this are embedded as WebP; the PNG stays in figures/.
_LARGE_GALLERY = 120_000
_WEBP = {"quality": 76, "method": 4}
#: Pixels per point of a figure where there is room; a font of 7.5 points then has 12.5 pixels.
_PIXELS_PER_POINT = 1.67
_SECONDS_PER_UNIT = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


def report_html(title: str, sections: Sequence[Section]) -> str:
    """Return a page with a title, its sections, and links to them."""
    # The digest permits this script, and no other, to run.
    style, script = Markup(_read("style.css")), Markup(_read("script.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template("page.html.j2")
    return page.render(title=title, sections=sections, style=style, script=script, digest=digest)


def sort_value(text: str) -> float | None:
    """Return the number that a cell is sorted by: a duration in seconds, or its first number.

    For example, it is 4020 for ``"1 h 7 min"``, 25.25 for ``"25.25 ± 0.13"``, -0.5 for
    ``"−0.50 to 1.20"``, and just below 0.001 for ``"< 0.001"``.

    Returns:
        The number, or ``None`` if the cell does not start with one.
    """
    if re.fullmatch(r"(?:[\d.]+ (?:d|h|min|s) ?)+", text):  # a duration
        parts = re.findall(r"([\d.]+) (d|h|min|s)", text)
        return sum(float(count) * _SECONDS_PER_UNIT[unit] for count, unit in parts)
    number = re.match(r"(<?) ?([-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    if number is None:
        return None
    value = float(number[2].replace("−", "-"))
    return math.nextafter(value, -math.inf) if number[1] else value


@cache
def _templates() -> Environment:
    """Return the environment of the templates, with their filters, tests and functions."""
    environment = Environment(
        loader=FunctionLoader(_without_line_breaks), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"breakable": _breakable, "sort_value": sort_value}
    environment.tests |= {
        "strong": lambda piece: isinstance(piece, Strong),
        "alarming": lambda piece: isinstance(piece, Alarming),
    }
    environment.globals |= {
        "CLOSE_MARK": CLOSE_MARK,
        "NOTHING": NOTHING,
        "blocks": _blocks,
        "isfinite": math.isfinite,
        "panels": _panels,
        "picture": _picture,
    }
    return environment


def _without_line_breaks(name: str) -> str:
    """Return a template without line breaks and indentation, which would be shown as spaces."""
    return "".join(line.strip() for line in _read(name).splitlines())


def _read(name: str) -> str:
    return resources.files("reality_check.report.render").joinpath(name).read_text("utf-8")


def _blocks(blocks: Iterable[Block]) -> Markup:
    """Return blocks as HTML, each by the macro that has the name of its class."""
    macros = _templates().get_template("blocks.html.j2").module
    return Markup().join(
        getattr(macros, "str" if isinstance(block, str) else type(block).__name__)(block)
        for block in blocks
    )


def _breakable(name: str) -> Markup:
    """Return a name with permitted line breaks after underscores, dots and hyphens."""
    return Markup(re.sub(r"([_.-])(?=[^\W\d])", r"\1<wbr>", html.escape(name)))


def _panels(figure: ReportFigure) -> Iterator[tuple[Markup, str]]:
    """Yield a figure's panels as SVG in the colours of the page, with their widths in pixels."""
    digest = hashlib.sha256(f"{figure.folder}{figure.stem}".encode()).hexdigest()
    for svg, points in inline_svg(figure.files["svg"], f"f{digest[:8]}-"):
        yield Markup(svg), f"{_PIXELS_PER_POINT * points:.0f}"


def _picture(png: bytes) -> str:
    """Return a picture as a data URL; large ones become WebP to keep the page small."""
    kind = "png"
    if len(png) > _LARGE_GALLERY:
        kind, stream = "webp", io.BytesIO()
        with Image.open(io.BytesIO(png)) as image:
            image.convert("RGB").save(stream, "WEBP", **_WEBP)
        png = stream.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(png).decode()}"
