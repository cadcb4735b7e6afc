"""What the figures share: colours, panels, and writing a figure as PNG, PDF and SVG."""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

#: Okabe and Ito's colours that differ for colour-blind readers and on white and dark grounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e2e2e2"

#: Inches: a figure over both columns of a paper, so that letters keep their size in it.
WIDTH = 6.9
#: Points: titles and the names of axes; ticks, legends and notes. Publishers ask for 7 at least.
TEXT = 8.0
SMALL = 7.5

#: While a figure is written. TrueType, since publishers refuse Type 3; and no layout but the
#: figure's own: with any, even one that does nothing, matplotlib draws each file twice.
_SETTINGS = {
    "pdf.fonttype": 42,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
}
#: One figure is drawn at a time: matplotlib's fonts and its settings are shared by all threads.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report, which is drawn when its files are asked for.

    Attributes:
        stem: file name without ending.
        caption: one or two sentences below it.
        alt: what it shows, for readers who cannot see it.
        draw: draws it.
        folder: in which its ``figures/`` is, seen from the report; ends in a slash.
    """

    stem: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    folder: str = ""

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Its bytes by ending: ``png``, ``pdf``, ``svg``."""
        return render(self.draw())


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, sizes in inches, that needs no display and no pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def panel_grid(count: int, columns: int, height: float) -> tuple[Figure, int]:
    """Return a figure for ``count`` equal panels and its number of columns (at least one)."""
    columns = max(1, min(columns, count))
    return new_figure(WIDTH, height * max(1, math.ceil(count / columns)) + 0.35), columns


def panels(figure: Figure, count: int, columns: int, sharey: bool) -> Iterator[Axes]:
    """Yield ``count`` dressed axes in rows."""
    first: Axes | None = None
    for index in range(count):
        axes = figure.add_subplot(
            math.ceil(count / columns), columns, index + 1, sharey=first if sharey else None
        )
        first = first or axes
        dress(axes, SMALL)
        yield axes


def dress(axes: Axes, size: float = 9.0) -> None:
    """Give axes the report's plain look, and their ticks labels of so many points."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=size, colors=INK, color=FAINT)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def title(axes: Axes, text: str) -> None:
    """Head a panel; the text is taken literally, also with dollar signs."""
    axes.set_title(shorten(text, 23), fontsize=TEXT, loc="left", color=INK, parse_math=False)


def note(axes: Axes, text: str) -> None:
    """Say in the middle of an empty panel why it is empty."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=TEXT,
        color=INK, parse_math=False, wrap=True,
    )  # fmt: skip
    axes.grid(False)
    axes.set_xticks([])


def legend(figure: Figure, handles: list[Line2D]) -> None:
    """Put a legend above all panels, where there is anything to explain."""
    if handles:
        figure.legend(
            handles=handles, loc="outside upper right", ncols=min(6, len(handles)),
            frameon=False, fontsize=SMALL, labelcolor=INK,
        )  # fmt: skip


def shorten(text: str, length: int) -> str:
    """Cut a long name in its middle, so that both ends still tell names apart."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    return f"{text[: length - length // 2 - 1]}…{text[len(text) - length // 2 :]}"


def render(figure: Figure, endings: Sequence[str] = ("png", "pdf", "svg")) -> dict[str, bytes]:
    """Return the figure's files by ending: ``png`` (200 dpi), ``pdf`` and ``svg``, or some of them.

    The same figure always gives the same bytes, except for the ids inside the SVG.
    """
    dates = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    with _LOCK:
        kept = {name: matplotlib.rcParams[name] for name in _SETTINGS}
        matplotlib.rcParams.update(_SETTINGS)
        try:
            files = {}
            for ending in endings:
                files[ending] = _save(figure, ending, {dates[ending]: None})
                figure.set_layout_engine(None)  # laid out once, the same in all of them
            return files
        finally:
            matplotlib.rcParams.update(kept)


def _save(figure: Figure, ending: str, metadata: dict[str, None]) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending, dpi=200, metadata=metadata)
    return stream.getvalue()


def inline_svg(svg: bytes, prefix: str, label: str) -> str:
    """Return a figure's SVG as an element of an HTML page that follows the page's colours.

    Args:
        svg: what matplotlib wrote.
        prefix: makes the element's ids differ from those of other figures on the page.
        label: alternative text, already escaped for an attribute.
    """
    text = svg.decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)  # would style the whole page
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)  # texts again, and the dashes of names
    names: dict[str, str] = {}
    for name in re.findall(r'\bid="([^"]+)"', text):
        names.setdefault(name, f"{prefix}{len(names)}")
    text = re.sub(r'\bid="([^"]+)"', lambda m: f'id="{names[m[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{names.get(m[1], m[1])})", text)
    text = re.sub(r'href="#([^"]+)"', lambda m: f'href="#{names.get(m[1], m[1])}"', text)
    colours = {INK: "ink", FAINT: "faint", GRID: "grid", "#ffffff": "ground"}
    colours |= {colour: f"c{index}" for index, colour in enumerate(COLOURS)}
    for colour, variable in colours.items():
        text = re.sub(colour, f"var(--{variable}, {colour})", text, flags=re.I)
    size = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', text)
    view = f'viewBox="0 0 {size[1]} {size[2]}"' if size else ""
    head = f'<svg role="img" aria-label="{label}" {view}>'
    return re.sub(r"<svg[^>]*>", lambda _: head, text, count=1)
