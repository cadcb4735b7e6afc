"""``report.html``: one page with everything in it; it asks for nothing from any network.

The HTML is in the templates beside this file: ``page.html.j2``, and ``blocks.html.j2`` with a macro
for each kind of block, named like its class.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from reality_check.report.figures.plotting import ReportFigure, inline_svg
from reality_check.report.sections.blocks import Alarming, Block, Section, Strong
from reality_check.report.tables import CLOSE_MARK
from reality_check.report.wording import NOTHING

#: Larger galleries are set into the page as WebP; the PNG stays in figures/.
_LARGE_GALLERY = 120_000
_WEBP = {"quality": 76, "method": 4}
#: Pixels of a point of a figure where there is room: letters of 7.5 points are then 12.5 high.
_PIXELS = 1.67
_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


def report_html(title: str, sections: Sequence[Section]) -> str:
    """Return a page of sections under a title, with links to them."""
    style, script = Markup(_read("style.css")), Markup(_read("script.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template("page.html.j2")
    return page.render(title=title, sections=sections, style=style, script=script, digest=digest)


def sort_value(text: str) -> float | None:
    """Return the number that a cell is sorted by: its first one; a duration in seconds.

    ``"1 h 7 min"`` is 4020, ``"25.25 ± 0.13"`` 25.25, ``"−0.50 to 1.20"`` -0.5, ``"< 0.001"`` just
    below 0.001.

    Returns:
        ``None`` where there is no number.
    """
    is_duration = re.fullmatch(r"(?:[\d.]+ (?:d|h|min|s) ?)+", text)
    if is_duration:
        parts = re.findall(r"([\d.]+) (d|h|min|s)", text)
        return sum(float(count) * _SECONDS[unit] for count, unit in parts)
    number = re.match(r"(<?) ?([-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    if number is None:
        return None
    value = float(number[2].replace("−", "-"))
    return math.nextafter(value, -math.inf) if number[1] else value


@lru_cache(maxsize=1)
def _templates() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_joined), autoescape=True, undefined=StrictUndefined
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


def _joined(name: str) -> str:
    """Return a template without line breaks and indentation, which would be shown as spaces."""
    return "".join(line.strip() for line in _read(name).splitlines())


def _read(name: str) -> str:
    return resources.files("reality_check.report.render").joinpath(name).read_text("utf-8")


def _blocks(blocks: Iterable[Block]) -> Markup:
    macros = _templates().get_template("blocks.html.j2").module
    return Markup().join(
        getattr(macros, "str" if isinstance(block, str) else type(block).__name__)(block)
        for block in blocks
    )


def _breakable(name: str) -> Markup:
    """Return a name that may be broken after underscores, dots and hyphens only."""
    return Markup(re.sub(r"([_.-])(?=[^\W\d])", r"\1<wbr>", html.escape(name)))


def _panels(figure: ReportFigure) -> Iterator[tuple[Markup, str]]:
    """Return a figure's panels as SVG in the page's colours, with their widths in pixels."""
    digest = hashlib.sha256(f"{figure.folder}{figure.stem}".encode()).hexdigest()
    for svg, points in inline_svg(figure.files["svg"], f"f{digest[:8]}-"):
        yield Markup(svg), f"{_PIXELS * points:.0f}"


def _picture(png: bytes) -> str:
    """Return a picture as a data URL; WebP keeps a page of many galleries small."""
    kind = "png"
    if len(png) > _LARGE_GALLERY:
        kind, stream = "webp", io.BytesIO()
        with Image.open(io.BytesIO(png)) as image:
            image.convert("RGB").save(stream, "WEBP", **_WEBP)
        png = stream.getvalue()
    return f"data:image/{kind};base64,{base64.b64encode(png).decode()}"
