"""What the figures share: colours, panels, and writing a figure as SVG, PDF and PNG."""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

#: Okabe and Ito's colours that differ for colour-blind readers and on white and dark grounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: The shapes of means: of more rows than there are colours, each has one of its own.
_MARKS = "Ds^"
INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e2e2e2"

#: Inches: a figure over both columns of a paper, so that letters keep their size in it; one column.
WIDTH, COLUMN = 6.9, 3.45
#: Points: titles and the names of axes; ticks, legends and notes. Publishers ask for 7 at least.
TEXT = 8.0
SMALL = 7.5

#: Inches of a panel's cell that its ticks and titles take. Laying a figure out by what its texts
#: need would take longer than drawing it.
LEFT, _RIGHT, _TOP, _BOTTOM = 0.46, 0.1, 0.25, 0.37

#: Beside matplotlib's own defaults, while a figure is drawn and written. TrueType, since publishers
#: refuse Type 3; text that stays text, which a page can search; the same ids each time; and no
#: layout but the figure's own: with any, even one that does nothing, matplotlib draws each file
#: twice.
_SETTINGS = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "reality-check",
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
}
#: One figure is drawn at a time: matplotlib's fonts and its settings are shared by all threads.
_LOCK = threading.Lock()


def row_style(row: int) -> tuple[str, str]:
    """Return the colour and marker of a row; no two of up to 18 rows share both."""
    return COLOURS[row % len(COLOURS)], _MARKS[row // len(COLOURS) % len(_MARKS)]


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report, which is drawn when its files are asked for.

    Attributes:
        stem: file name without ending.
        caption: one or two sentences below it.
        alt: what it shows, for readers who cannot see it.
        draw: draws it.
        folder: in which its ``figures/`` is, seen from the report; ends in a slash.
        paper: whether it is one for a paper, and so a PDF too: those that compare methods.
    """

    stem: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    folder: str = ""
    paper: bool = True

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Its bytes by ending: ``svg``, and of one for a paper ``pdf``."""
        return render(self.draw, ("svg", "pdf") if self.paper else ("svg",))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, sizes in inches, that needs no display and no pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def panel_grid(
    count: int, columns: int, height: float, left: float = LEFT
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its dressed panels, each in a cell that a page can set in other rows.

    Nothing but panels may be drawn on it, and nothing of one outside its cell.

    Args:
        count: of panels.
        columns: at most so many side by side.
        height: of a cell in inches.
        left: of each panel's left edge in its cell, in inches.
    """
    columns = max(1, min(columns, count))
    width = min(WIDTH / columns, COLUMN)
    whole, high = width * columns, height * max(1, math.ceil(count / columns))
    figure = new_figure(whole, high)
    figure.set_layout_engine("none")
    grid = []
    for index in range(count):
        x, y = width * (index % columns), height * (index // columns)
        size = (width - left - _RIGHT) / whole, (height - _TOP - _BOTTOM) / high
        axes = figure.add_axes(((x + left) / whole, 1 - (y + height - _BOTTOM) / high, *size))
        axes.set_gid("cell" + "".join(f"_{72 * inches:.1f}" for inches in (x, y, width, height)))
        axes.locator_params(nbins=4)
        dress(axes, SMALL)
        grid.append(axes)
    return figure, grid


def share_scale(grid: Sequence[Axes], label: str) -> None:
    """Give panels one vertical scale, and the first of them its name."""
    for axes in grid[1:]:
        axes.sharey(grid[0])
    if grid:
        grid[0].set_ylabel(label, fontsize=SMALL, color=INK)


def name_x(axes: Axes, text: str) -> None:
    """Name the horizontal axis; the text is taken literally."""
    axes.set_xlabel(text, fontsize=SMALL, color=INK, labelpad=2, parse_math=False)


def dress(axes: Axes, size: float = 9.0) -> None:
    """Give axes the report's plain look, and their ticks labels of so many points."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=size, colors=INK, color=FAINT)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def title(axes: Axes, text: str, longest: int = 23) -> None:
    """Head a panel; the text is taken literally, also with dollar signs."""
    axes.set_title(shorten(text, longest), fontsize=TEXT, loc="left", color=INK, parse_math=False)


def mark_empty(axes: Axes, text: str) -> None:
    """Write into an empty panel why it is empty."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=TEXT,
        color=INK, parse_math=False, wrap=True,
    )  # fmt: skip
    axes.grid(False)
    axes.set_xticks([])


def only_names(axes: Axes, handles: Sequence[Line2D]) -> None:
    """Turn a panel into a legend of colours and shapes; the texts are taken literally."""
    axes.set_axis_off()
    shown = axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.15, 1.0), frameon=False,
        fontsize=SMALL, labelcolor=INK,
    )  # fmt: skip
    for text in shown.get_texts():
        text.set_parse_math(False)


def shorten(text: str, length: int) -> str:
    """Cut a long name in its middle, so that names with one beginning or end stay distinct."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    return f"{text[: length - length // 2 - 1]}…{text[len(text) - length // 2 :]}"


def render(draw: Callable[[], Figure], endings: Sequence[str]) -> dict[str, bytes]:
    """Draw a figure and return its files by ending: ``png`` (200 dpi), ``pdf``, ``svg``.

    The same figure always gives the same bytes: what the user has set in matplotlib (a
    matplotlibrc, a style) neither shows in it nor is changed.
    """
    dates = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    with _LOCK, matplotlib.style.context(["default", _SETTINGS]):
        figure = draw()
        files = {}
        for ending in endings:
            files[ending] = _save(figure, ending, {dates[ending]: None})
            figure.set_layout_engine(None)  # laid out once, the same in all of them
        return files


def _save(figure: Figure, ending: str, metadata: dict[str, None]) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending, dpi=200, metadata=metadata)
    return stream.getvalue()


def inline_svg(svg: bytes, prefix: str) -> list[tuple[str, float]]:
    """Return a figure's panels as elements of an HTML page, each with its width in points.

    They follow the page's colours and fonts, and flow as the page has room.

    Args:
        svg: what :func:`render` wrote of a figure of :func:`panel_grid`.
        prefix: makes the elements' ids differ from those of other figures on the page.
    """
    text = svg.decode("utf-8")
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)  # texts again, and the dashes of names
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    first, last = text.index('<g id="cell_'), text.rindex("</g>", 0, text.rindex("<defs>"))
    defs = text[text.rindex("<defs>") : text.rindex("</svg>")]
    used = {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)}
    panels = re.split(r'<g id="cell_([\d._]+)">', text[first:last])[1:]
    elements: list[tuple[str, float]] = []
    for cell, panel in zip(panels[::2], panels[1::2], strict=True):
        x, y, width, height = cell.split("_")
        head = f'<svg aria-hidden="true" viewBox="{x} {y} {width} {height}">'
        content = f"{head}<g>{panel}{'' if elements else defs}</svg>"
        elements.append((_restyled(content, used, prefix), float(width)))
    return elements


def _restyled(text: str, used: set[str], prefix: str) -> str:
    """Return SVG with a prefix for ids in use, and colours that follow the page's."""
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
    colours = {INK: "ink", FAINT: "faint", GRID: "grid", "#ffffff": "ground"}
    colours |= {colour: f"c{index}" for index, colour in enumerate(COLOURS)}
    return re.sub(
        "|".join(colours), lambda m: f"var(--{colours[m[0].lower()]}, {m[0]})", text, flags=re.I
    )
