"""The look of the figures, and their numbers and captions as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

#: Okabe and Ito's colours that differ for colour-blind readers and on white and dark grounds.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e2e2e2"
#: A table: columns of equal length by name.
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn.

    Args:
        tables: by name; each becomes a CSV file. The main one has the name ``""``.
        caption: what was run: data, numbers of images, seeds, settings.
    """

    tables: dict[str, Columns]
    caption: str


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, sizes in inches, that needs no display and no pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes) -> None:
    """Give axes a plain look."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=9.0, colors=INK, color=FAINT)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def write_figure(
    file: Path, data: FigureData, draw: Callable[[FigureData], Figure], ending: str
) -> list[Path]:
    """Write a picture, its tables as CSV and its caption as text.

    Args:
        file: where, without ending.
        data: what is drawn.
        draw: draws it.
        ending: ``png`` or ``pdf``.

    Returns:
        The files. The same data gives the same bytes.
    """
    picture = file.with_suffix(f".{ending}")
    picture.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context(["default", {"pdf.fonttype": 42}]):
        metadata = {"CreationDate" if ending == "pdf" else "Software": None}
        draw(data).savefig(picture, dpi=200, metadata=metadata)
    if ending == "png":
        _reduce_colours(picture)
    caption = file.with_suffix(".txt")
    caption.write_text(data.caption + "\n", encoding="utf-8")
    written = [picture, caption]
    for name, columns in data.tables.items():
        table = file.with_name(f"{file.name}{name and '_'}{name}.csv")
        table.write_text(csv_text(columns), encoding="utf-8")
        written.append(table)
    return written


def csv_text(columns: Columns) -> str:
    """Return a table as CSV: numbers to eight digits, an empty field for None."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{value:.8g}" if isinstance(value, float) else value for value in row])
    return stream.getvalue()


def _reduce_colours(png: Path) -> None:
    """Leave at most 64 colours: a quarter of the bytes, the same to the eye."""
    with Image.open(png) as picture:
        colours = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        colours.save(png, optimize=True, dpi=picture.info.get("dpi"))
