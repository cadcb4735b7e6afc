"""Figures as a publisher takes them: as wide as two columns, letters of 7 points, no Type 3."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from reality_check.report.analysis import Analysis
from reality_check.report.figures.overview import DrawnFigure, draw_figures
from reality_check.report.figures.statistics_figures import log_ticks
from reality_check.report.sections import statistics_sections
from reality_check.report.summary import Summary

INCHES = 6.9


def letters(pdf: bytes) -> Iterator[float]:
    """The sizes in points at which the file sets text."""
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S):
        try:
            content = zlib.decompress(stream)
        except zlib.error:
            continue
        yield from map(float, re.findall(rb"/\S+ ([\d.]+) Tf", content))


@pytest.fixture(scope="module")
def drawn(build: Any) -> list[DrawnFigure]:
    summary = Summary(build())
    sections = statistics_sections(summary, Analysis(summary))
    return [*draw_figures(summary), *(figure for s in sections for figure in s.figures)]


def test_every_figure_is_as_wide_as_two_columns(drawn: list[DrawnFigure]) -> None:
    assert len({figure.stem for figure in drawn}) >= 10
    for figure in drawn:
        box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", figure.files["pdf"])
        assert box is not None
        width, height = map(float, box[1].split()[2:])
        assert width == pytest.approx(72 * INCHES), figure.stem
        assert height < 72 * 9, f"{figure.stem} is higher than a page"
        with Image.open(io.BytesIO(figure.files["png"])) as picture:
            assert picture.width == pytest.approx(200 * INCHES, abs=1), figure.stem


def test_letters_can_be_read_and_are_embedded(drawn: list[DrawnFigure]) -> None:
    for figure in drawn:
        pdf = figure.files["pdf"]
        sizes = list(letters(pdf))
        assert sizes, f"no text found in {figure.stem}"
        assert min(sizes) >= 7, figure.stem
        assert b"/Type3" not in pdf, figure.stem
        assert pdf.count(b"/FontFile2 ") == pdf.count(b"/Type /FontDescriptor") > 0, figure.stem


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.14, 0.42, [0.15, 0.2, 0.3, 0.4]),
        (0.5, 9, [1, 3]),
        (3, 250, [10, 100]),
        (0.0005, 0.012, [0.001, 0.01]),
        (1.02, 1.38, [1.1, 1.2, 1.3]),
        (0.4142, 0.4143, [0.4142, 0.4143]),
        (2.0, 2.0, [2.0]),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == expected
    assert all(low <= tick <= high for tick in log_ticks(low, high))
