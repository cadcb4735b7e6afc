"""Figures: what is in them, that they need no display, and that they are the same every time."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from matplotlib.lines import Line2D

from reality_check.config.metrics import METRICS
from reality_check.report.figures.comparison import intervals_figure
from reality_check.report.figures.plotting import COLOURS, ReportFigure, inline_svg, shorten
from reality_check.report.figures.search import search_figure, validation_figure
from reality_check.report.sections.intervals import intervals_section
from reality_check.report.sections.search import search_section
from reality_check.report.statistics import t_interval
from reality_check.report.summary import Summary
from reality_check.results import ExperimentResults


def report_figures(summary: Summary) -> list[ReportFigure]:
    """Those of the sections on means and on searches."""
    intervals = intervals_section(summary)
    return [*(intervals.figures if intervals else []), *search_section(summary).figures]


def xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata())]


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata())]


@pytest.fixture(scope="module")
def drawn(build: Any) -> list[ReportFigure]:
    return report_figures(Summary(build()))


def test_every_figure_has_its_files(drawn: list[ReportFigure]) -> None:
    assert [figure.stem for figure in drawn] == [
        *(f"intervals_{metric}" for metric in METRICS),
        "search_history",
        "validation_curves",
    ]
    for figure in drawn:
        assert figure.files["png"].startswith(b"\x89PNG")
        assert figure.files["pdf"].startswith(b"%PDF")
        assert b"/Type3" not in figure.files["pdf"]
        assert b"<svg" in figure.files["svg"]
        assert figure.alt
        assert figure.caption


def test_the_interval_lines_are_the_intervals(results: ExperimentResults) -> None:
    summary = Summary(results)
    axes = intervals_figure(summary).axes[1]
    values = summary.samples("ensemble", "mean_average_precision_at_r")["warped"]
    dots, line, mean = axes.lines[:3]
    assert sorted(xs(dots)) == pytest.approx(sorted(100 * v for v in values))
    interval = t_interval(values)
    assert interval.low is not None
    assert interval.high is not None
    assert xs(line) == pytest.approx([100 * interval.low, 100 * interval.high])
    assert xs(mean) == pytest.approx([100 * interval.mean])


def test_the_search_line_is_the_best_so_far_and_divergence_is_marked(
    results: ExperimentResults,
) -> None:
    axes = search_figure(Summary(results)).axes[1]
    dots, best, diverged = axes.lines
    assert xs(diverged) == [3]
    assert 3 not in xs(dots)
    running = -1.0
    for value, top in zip(ys(dots), ys(best), strict=True):
        running = max(running, value)
        assert top == running


def test_validation_curves_are_those_of_the_winner(results: ExperimentResults) -> None:
    summary = Summary(results)
    axes = validation_figure(summary).axes[0]
    best = max(results.methods[0].search, key=lambda t: t.value or 0)
    lines = [line for line in axes.lines if len(xs(line)) > 1]
    assert len(lines) == 4
    assert ys(lines[0]) == pytest.approx([100 * v for _, v in best.curves[0]])


@pytest.mark.usefixtures("laid_out")
def test_the_dot_is_on_an_epoch_that_training_may_choose(results: ExperimentResults) -> None:
    method = results.methods[0]
    curve = ((-1, 0.5), (0, 0.6), (2, 0.3), (4, 0.4), (6, 0.4), (8, 0.2))
    untrained = curve[:2]
    best = dataclasses.replace(method.search[0], value=0.9, curves=(curve, untrained))
    method = dataclasses.replace(method, search=(best,), retrained=((0, best.trial_index),))
    summary = Summary(dataclasses.replace(results, methods=(method,)))
    axes = validation_figure(summary).axes[0]
    dots = [(xs(line), ys(line)) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [([4.0], [40.0])], "the earlier of two equal ones, and none without training"
    caption = report_figures(summary)[-1].caption
    assert "best trained epoch. Epochs −1" in caption
    assert caption.endswith("are never chosen.")


def test_no_results_no_figures(results: ExperimentResults) -> None:
    assert report_figures(Summary(dataclasses.replace(results, rows=(), methods=()))) == []


@pytest.mark.usefixtures("laid_out")
def test_dollar_signs_and_long_names_are_taken_literally(results: ExperimentResults) -> None:
    name = "$\\frac{ " + "x" * 200
    rows = tuple(dataclasses.replace(row, method=name) for row in results.rows)
    method = dataclasses.replace(results.methods[0], name=name)
    changed = dataclasses.replace(results, rows=rows, methods=(method,))
    assert len([figure.files for figure in report_figures(Summary(changed))]) == 5


def test_shorten_keeps_both_ends() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert len(shorten("x" * 99, 28)) == 28


def test_files_are_the_same_every_time_and_in_threads(results: ExperimentResults) -> None:
    summary = Summary(results)
    with ThreadPoolExecutor(2) as pool:
        drawn = list(
            pool.map(lambda _: [figure.files for figure in report_figures(summary)], range(2))
        )
    for files in zip(*drawn, strict=True):
        for ending in ("png", "pdf"):
            assert len({file[ending] for file in files}) == 1
        assert len({inline_svg(file["svg"], "p", "alt") for file in files}) == 1


def test_inline_svg_has_own_ids_no_styles_and_follows_the_page(drawn: list[ReportFigure]) -> None:
    text = inline_svg(drawn[0].files["svg"], "here-", "what &quot;it&quot; shows")
    assert text.startswith('<svg role="img" aria-label="what &quot;it&quot; shows" viewBox=')
    assert "<style" not in text
    assert "metadata" not in text
    names = set(re.findall(r'\bid="([^"]+)"', text))
    assert all(name.startswith("here-") for name in names)
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert used
    assert set(used) <= names
    for colour in COLOURS:
        assert not re.search(rf"(?<!, ){colour}", text)
    assert "var(--c0, #0072b2)" in text


def test_drawing_needs_no_pyplot() -> None:
    code = (
        "import sys, reality_check.report as r; from reality_check.results import "
        "ExperimentResults; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_run_and_missing_methods_are_drawn(build: Any) -> None:
    summary = Summary(build({"warped": 1}))
    axes = intervals_figure(summary).axes[0]
    assert len(axes.lines) == 2  # the dot and the mean, no interval
    assert [text.get_text() for text in axes.texts] == ["no results yet"] * 3
