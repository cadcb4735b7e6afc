"""Figures as a publisher takes them: one or two columns wide, letters of 7 points, no Type 3."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

COLUMNS = (3.45, 6.9)


def letters(pdf: bytes) -> Iterator[float]:
    """The sizes in points at which the file sets text."""
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S):
        try:
            content = zlib.decompress(stream)
        except zlib.error:
            continue
        yield from map(float, re.findall(rb"/\S+ ([\d.]+) Tf", content))


@pytest.fixture(scope="module")
def figures(drawn_report: Path) -> list[Path]:
    """The PDF of every figure that compares methods; beside it is its SVG, as of all others."""
    return sorted((drawn_report / "figures").glob("*.pdf"))


def test_every_figure_is_as_wide_as_one_column_or_two(figures: list[Path]) -> None:
    assert len(figures) >= 4
    for figure in figures:
        box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", figure.read_bytes())
        assert box is not None
        width, height = map(float, box[1].split()[2:])
        check_size(width, height, figure.stem)
    drawings = sorted(figures[0].parent.glob("*.svg"))
    assert len(drawings) >= 8
    for drawing in drawings:
        text = drawing.read_text("utf-8")
        size = re.search(r'<svg [^>]*width="([\d.]+)pt" height="([\d.]+)pt"', text)
        assert size is not None
        check_size(float(size[1]), float(size[2]), drawing.stem)
        assert min(map(float, re.findall(r"font(?:-size)?: ([\d.]+)px", text))) >= 7, drawing.stem


def check_size(width: float, height: float, name: str) -> None:
    assert any(width == pytest.approx(72 * inches, abs=0.1) for inches in COLUMNS), name
    assert height < 72 * 9, f"{name} is higher than a page"


def test_letters_can_be_read_and_are_embedded(figures: list[Path]) -> None:
    assert figures
    for figure in figures:
        pdf = figure.read_bytes()
        sizes = list(letters(pdf))
        assert sizes, f"no text found in {figure.stem}"
        assert min(sizes) >= 7, figure.stem
        assert b"/Type3" not in pdf, figure.stem
        assert pdf.count(b"/FontFile2 ") == pdf.count(b"/Type /FontDescriptor") > 0, figure.stem
