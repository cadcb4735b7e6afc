"""What a figure of a paper is: numbers computed first, drawn from them alone, written together."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image

from reality_check.utils.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: How much is trained: ``quick`` for a look in seconds at made-up images, ``default`` for minutes
#: on one core, ``full`` for the networks, images and epochs of the paper.
Budget = Literal["quick", "default", "full"]
#: A table: columns of equal length by name.
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Settings:
    """How a figure is computed.

    Args:
        budget: how much is trained.
        folder: where trainings are kept, finished and unfinished ones.
        log: takes lines of progress.
    """

    budget: Budget = "default"
    folder: Path = Path("figures")
    log: Callable[[str], None] = field(default=lambda line: None)


@dataclass(frozen=True)
class FigureData:
    """Everything that is drawn.

    Args:
        tables: by name; each becomes a CSV file. The main one has the name ``""``.
        caption: what was run: data, numbers of images, seeds, settings.
    """

    tables: dict[str, Columns]
    caption: str


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper that can be drawn again.

    Args:
        name: how the command calls it.
        source: paper and number of the figure there.
        shows: one line on what it shows.
        needs: real images that it needs without ``--quick``; empty where formulas suffice.
        compute: gets the numbers.
        draw: draws them.
    """

    name: str
    source: str
    shows: str
    needs: str
    compute: Callable[[Settings], FigureData]
    draw: Callable[[FigureData], Figure]


def write_figure(figure: PaperFigure, settings: Settings, ending: str) -> list[Path]:
    """Compute and draw a figure and write it into ``settings.folder``.

    Args:
        figure: what to draw.
        settings: how.
        ending: ``png`` or ``pdf``.

    Returns:
        The files: the picture, its tables as CSV, its caption as text. Each is whole or absent.
    """
    from reality_check.report.figures.plotting import render  # Matplotlib is slow to import

    data = figure.compute(settings)
    picture = render(lambda: figure.draw(data), (ending,))[ending]
    if ending == "png":
        picture = with_palette(picture)
    written: dict[str, str | bytes] = {
        f"{figure.name}.{ending}": picture,
        f"{figure.name}.txt": data.caption + "\n",
    }
    for name, columns in data.tables.items():
        written[f"{figure.name}{name and '_'}{name}.csv"] = csv_text(columns)
    for name, content in written.items():
        atomic_write(settings.folder / name, content)
    return [settings.folder / name for name in written]


def with_palette(png: bytes) -> bytes:
    """Return a picture with at most 64 colours: a quarter of the bytes, the same to the eye."""
    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        colours = picture.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        colours.save(stream, "png", optimize=True, dpi=picture.info.get("dpi"))
    return stream.getvalue()


def csv_text(columns: Columns) -> str:
    """Return a table as CSV: numbers to eight digits, an empty field for None.

    Raises:
        ValueError: the columns have different lengths.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_field(value) for value in row])
    return stream.getvalue()


def _field(value: Any) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int) else f"{float(value):.8g}"
