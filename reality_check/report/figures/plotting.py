"""Colours, panels, and the writing of figures as SVG, PDF and PNG."""

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

#: Okabe and Ito's colours, distinct to colour-blind readers and on light and dark backgrounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Markers of means; the next one is used when the colours are used up.
_MARKERS = "Ds^"
INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e2e2e2"

#: Widths in inches of both columns and of one column of a paper, so that fonts keep their size.
WIDTH, COLUMN = 6.9, 3.45
#: Font sizes in points of titles, and of labels, ticks and legends; publishers ask for at least 7.
TEXT = 8.0
SMALL = 7.5

#: Margins in inches of a panel in its cell, for ticks and titles; fixed, since an
#: automatic layout takes longer than drawing.
LEFT, _RIGHT, _TOP, _BOTTOM = 0.46, 0.1, 0.25, 0.37

#: Changes to matplotlib's defaults while figures are drawn and written: TrueType fonts, since
#: publishers refuse Type 3; searchable text; reproducible ids; and no automatic layout, with which
#: matplotlib would draw each file twice.
_SETTINGS = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "reality-check",
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
}
#: Held while a figure is drawn, since threads share matplotlib's fonts and settings.
_LOCK = threading.Lock()


def row_style(row: int) -> tuple[str, str]:
    """Return the colour and marker of a row; no two of up to 18 rows share both."""
    return COLOURS[row % len(COLOURS)], _MARKERS[row // len(COLOURS) % len(_MARKERS)]


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report, which is drawn when :attr:`files` is first read.

    Attributes:
        stem: file name without suffix.
        caption: one or two sentences below the figure.
        alt: description for readers who cannot see the figure.
        draw: returns the figure.
        folder: path from the report to the folder that contains ``figures/``, with a slash at its
            end, or empty.
        paper: whether the figure suits a paper, so that a PDF is written, too.
    """

    stem: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    folder: str = ""
    paper: bool = True

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Contents of the files by suffix: ``svg`` and, for a paper, ``pdf``."""
        return render(self.draw, ("svg", "pdf") if self.paper else ("svg",))


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; it needs neither a display nor pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def panel_grid(
    count: int, columns: int, height: float, left: float = LEFT
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, each in a cell of its own.

    A page rearranges the cells as it has room, so all drawing must be within the cells of panels.

    Args:
        count: number of panels.
        columns: largest number of panels side by side.
        height: height of a cell in inches.
        left: distance of a panel from the left edge of its cell in inches.
    """
    columns = max(1, min(columns, count))
    width = min(WIDTH / columns, COLUMN)
    full_width, full_height = width * columns, height * max(1, math.ceil(count / columns))
    figure = new_figure(full_width, full_height)
    figure.set_layout_engine("none")
    grid = []
    for index in range(count):
        x, y = width * (index % columns), height * (index // columns)
        # As fractions of the figure, whose origin is at its bottom, while y counts from the top
        bounds = (
            (x + left) / full_width,
            1 - (y + height - _BOTTOM) / full_height,
            (width - left - _RIGHT) / full_width,
            (height - _TOP - _BOTTOM) / full_height,
        )
        axes = figure.add_axes(bounds)
        # By these ids, :func:`inline_svg` finds the cells and their bounds in points.
        axes.set_gid("cell" + "".join(f"_{72 * inches:.1f}" for inches in (x, y, width, height)))
        axes.locator_params(nbins=4)
        dress(axes, SMALL)
        grid.append(axes)
    return figure, grid


def share_scale(grid: Sequence[Axes], label: str) -> None:
    """Give panels a common vertical scale, and label it at the first panel."""
    for axes in grid[1:]:
        axes.sharey(grid[0])
    if grid:
        grid[0].set_ylabel(label, fontsize=SMALL, color=INK)


def label_x(axes: Axes, text: str) -> None:
    """Label the horizontal axis, without interpreting ``$`` in the text."""
    axes.set_xlabel(text, fontsize=SMALL, color=INK, labelpad=2, parse_math=False)


def dress(axes: Axes, size: float = 9.0) -> None:
    """Give axes the plain style of the report; ``size`` is the font size of ticks in points."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=size, colors=INK, color=FAINT)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def title(axes: Axes, text: str, longest: int = 23) -> None:
    """Set the title of a panel, without interpreting ``$``; long titles are shortened."""
    axes.set_title(shorten(text, longest), fontsize=TEXT, loc="left", color=INK, parse_math=False)


def mark_empty(axes: Axes, text: str) -> None:
    """Write into an empty panel the reason why it is empty."""
    axes.text(
        0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=TEXT,
        color=INK, parse_math=False, wrap=True,
    )  # fmt: skip
    axes.grid(False)
    axes.set_xticks([])


def show_legend(axes: Axes, handles: Sequence[Line2D]) -> None:
    """Turn a panel into a legend, without interpreting ``$`` in its texts."""
    axes.set_axis_off()
    shown = axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.15, 1.0), frameon=False,
        fontsize=SMALL, labelcolor=INK,
    )  # fmt: skip
    for text in shown.get_texts():
        text.set_parse_math(False)


def shorten(text: str, length: int) -> str:
    """Cut a long text in its middle, so that texts with equal beginnings or ends stay distinct."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    return f"{text[: length - length // 2 - 1]}…{text[len(text) - length // 2 :]}"


def render(draw: Callable[[], Figure], endings: Sequence[str]) -> dict[str, bytes]:
    """Draw a figure and return its files by suffix: ``png`` (200 dpi), ``pdf``, ``svg``.

    The same figure always gives the same bytes: the user's settings of matplotlib (a matplotlibrc,
    a style) are neither used nor changed.
    """
    # Without these entries, the same figure always gives the same bytes.
    omitted_metadata = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}
    with _LOCK, matplotlib.style.context(["default", _SETTINGS]):
        figure = draw()
        files = {}
        for ending in endings:
            files[ending] = _save(figure, ending, {omitted_metadata[ending]: None})
            figure.set_layout_engine(None)  # the layout of the first file is kept for the others
        return files


def _save(figure: Figure, ending: str, metadata: dict[str, None]) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=ending, dpi=200, metadata=metadata)
    return stream.getvalue()


def inline_svg(svg: bytes, prefix: str) -> list[tuple[str, float]]:
    """Return a figure's panels as SVG elements of an HTML page, each with its width in points.

    The elements use the colours and fonts of the page.

    Args:
        svg: SVG file of a figure of :func:`panel_grid`, from :func:`render`.
        prefix: prefix of ids, so that the figures of a page share no id.
    """
    # Without matplotlib's comments, which repeat the texts.
    text = re.sub(r"<!--.*?-->\s*", "", svg.decode("utf-8"), flags=re.S)
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    # The panels end before the last closing tag in front of the shared definitions.
    start, end = text.index('<g id="cell_'), text.rindex("</g>", 0, text.rindex("<defs>"))
    defs = text[text.rindex("<defs>") : text.rindex("</svg>")]
    used_ids = {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)}
    # The bounds of each cell, each followed by the panel in it.
    panels = re.split(r'<g id="cell_([\d._]+)">', text[start:end])[1:]
    elements: list[tuple[str, float]] = []
    for cell, panel in zip(panels[::2], panels[1::2], strict=True):
        x, y, width, height = cell.split("_")
        head = f'<svg aria-hidden="true" viewBox="{x} {y} {width} {height}">'
        # The panel ends with the tag that closes its cell; the first one brings the definitions.
        content = f"{head}<g>{panel}{'' if elements else defs}</svg>"
        elements.append((_restyled(content, used_ids, prefix), float(width)))
    return elements


def _restyled(text: str, used_ids: set[str], prefix: str) -> str:
    """Return SVG with prefixed ids and the colours of the page; unused ids are removed."""
    text = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in used_ids else "", text
    )
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", text)
    # From colours to the names of the page's CSS variables
    colours = {INK: "ink", FAINT: "faint", GRID: "grid", "#ffffff": "ground"}
    colours |= {colour: f"c{index}" for index, colour in enumerate(COLOURS)}
    return re.sub(
        "|".join(colours), lambda m: f"var(--{colours[m[0].lower()]}, {m[0]})", text, flags=re.I
    )
