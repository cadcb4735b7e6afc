"""Figures: what is in them, that they need no display, and that they are the same every time."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.lines import Line2D

from reality_check.config.metrics import METRICS, PRIMARY, metric_of
from reality_check.report.figures.comparison import intervals_figure
from reality_check.report.figures.plotting import COLOURS, ReportFigure, inline_svg, shorten
from reality_check.report.figures.search import method_figure
from reality_check.report.sections.comparison import interval_figures
from reality_check.report.sections.methods import methods_section
from reality_check.report.summary import Summary
from reality_check.report.tables import overview_table
from reality_check.results import ExperimentResults, MethodResults, TrialRecord
from reality_check.statistics import t_interval


def report_figures(summary: Summary) -> list[ReportFigure]:
    """Those of the sections on means and on methods."""
    section = methods_section(summary)
    return [*interval_figures(summary), *(section.figures if section else [])]


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
        *("method_warped", "method_my_loss_50_", "method__b_x_b_", "method_late_slow"),
    ]
    for figure in drawn:
        assert set(figure.files) == ({"svg", "pdf"} if figure.paper else {"svg"})
        assert figure.paper == figure.stem.startswith("intervals"), "PDFs of comparisons"
        if figure.paper:
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


def test_the_rows_of_the_figure_are_in_the_order_of_the_table(results: ExperimentResults) -> None:
    last = results.methods[-1].name
    rows = tuple(
        dataclasses.replace(row, value=0.9) if row.method == last else row for row in results.rows
    )
    summary = Summary(dataclasses.replace(results, rows=rows))
    table = overview_table(summary)
    assert table is not None
    names = [row.method for row in table.rows if row.trained]
    assert names[0] == last
    for axes in intervals_figure(summary).axes:
        assert [text.get_text() for text in axes.texts if text.get_text() in names] == names


def test_validation_curves_are_those_of_the_winner(results: ExperimentResults) -> None:
    method = results.methods[0]
    best = max(method.search, key=lambda t: t.value or 0)
    panels = method_figure(method, (), metric_of(PRIMARY)).axes[len(method.searched) :]
    assert len(panels) == 4, "one a fold"
    for axes, curve in zip(panels, best.curves, strict=True):
        (line,) = [line for line in axes.lines if len(xs(line)) > 1]
        assert ys(line) == pytest.approx([100 * v for _, v in curve])


@pytest.mark.usefixtures("laid_out")
def test_the_dot_is_on_an_epoch_that_training_may_choose(results: ExperimentResults) -> None:
    method = results.methods[0]
    curve = ((-1, 0.5), (0, 0.6), (2, 0.3), (4, 0.4), (6, 0.4), (8, 0.2))
    untrained = curve[:2]
    best = dataclasses.replace(method.search[0], value=0.9, curves=(curve, untrained))
    method = dataclasses.replace(method, search=(best,), retrained=((0, best.trial_index),))
    axes = method_figure(method, (), metric_of(PRIMARY)).axes[len(method.searched)]
    dots = [(xs(line), ys(line)) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [([4.0], [40.0])], "the earlier of two equal ones, and none without training"
    section = methods_section(Summary(dataclasses.replace(results, methods=(method,))))
    assert section is not None
    caption = section.figures[0].caption
    assert "best trained epoch, whose network is scored. Epochs −1" in caption
    assert caption.endswith("are never chosen.")


def test_no_results_no_figures(results: ExperimentResults) -> None:
    assert report_figures(Summary(dataclasses.replace(results, rows=(), methods=()))) == []


@pytest.mark.usefixtures("laid_out")
def test_dollar_signs_and_long_names_are_taken_literally(results: ExperimentResults) -> None:
    name = "$\\frac{ " + "x" * 200
    rows = tuple(dataclasses.replace(row, method=name) for row in results.rows)
    method = dataclasses.replace(results.methods[0], name=name)
    changed = dataclasses.replace(results, rows=rows, methods=(method,))
    assert len([figure.files for figure in report_figures(Summary(changed))]) == 4


def named(results: ExperimentResults, names: list[str]) -> ExperimentResults:
    """Its first method again and again, under these names."""
    first = results.methods[0]
    own = [row for row in results.rows if row.method == first.name]
    return dataclasses.replace(
        results,
        rows=tuple(dataclasses.replace(row, method=name) for name in names for row in own),
        methods=tuple(dataclasses.replace(first, name=name) for name in names),
    )


def test_no_two_of_many_methods_look_the_same(results: ExperimentResults) -> None:
    """There are six colours; a seventh method with the first one has another mark."""
    many = named(results, [f"m{number}" for number in range(15)])
    means = [line for line in intervals_figure(Summary(many)).axes[0].lines if len(xs(line)) == 1]
    assert len({(line.get_color(), line.get_marker()) for line in means}) == 15


def test_methods_whose_names_become_one_file_name_have_figures_of_their_own(
    results: ExperimentResults,
) -> None:
    section = methods_section(Summary(named(results, ["a (x/y)", "a (x y)", "A (x/y)", "b (x)"])))
    assert section is not None
    stems = [figure.stem for figure in section.figures]
    assert len({stem.lower() for stem in stems}) == 4
    assert stems[3] == "method_b_x_"


def test_shorten_keeps_both_ends() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert len(shorten("x" * 99, 28)) == 28


def test_files_are_the_same_every_time_and_in_threads(
    results: ExperimentResults, drawn: list[ReportFigure]
) -> None:
    summary = Summary(results)
    places = 0, -1  # one of each kind

    def draw(_: int) -> list[dict[str, bytes]]:
        figures = report_figures(summary)
        return [figures[place].files for place in places]

    with ThreadPoolExecutor(2) as pool:
        several = [*pool.map(draw, range(2)), [drawn[place].files for place in places]]
    for files in zip(*several, strict=True):
        assert len({tuple(sorted(file.items())) for file in files}) == 1


def test_inline_svg_has_own_ids_no_styles_and_follows_the_page(drawn: list[ReportFigure]) -> None:
    panels = inline_svg(drawn[0].files["svg"], "here-")
    assert [width for _, width in panels] == [pytest.approx(6.9 * 72 / 3, abs=0.1)] * 3
    text = "".join(svg for svg, _ in panels)
    for svg, _ in panels:
        assert svg.startswith('<svg aria-hidden="true" viewBox="')
        ElementTree.fromstring(svg.replace("xlink:", ""))
    for word in ("<style", "metadata", "DejaVu"):
        assert word not in text
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    assert all(name.startswith("here-") for name in names)
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert used
    assert set(used) == set(names)
    for colour in COLOURS:
        assert not re.search(rf"(?<!, ){colour}", text)
    assert "var(--c0, #0072b2)" in text


def test_every_panel_keeps_to_its_cell(drawn: list[ReportFigure]) -> None:
    """A page sets the panels in other rows, where what lies outside would be cut off."""
    for figure in drawn:
        drawing = figure.draw()
        renderer = drawing.canvas.get_renderer()
        high = drawing.bbox.height
        for axes in drawing.axes:
            box = axes.get_tightbbox(renderer)
            name = axes.get_gid()
            assert name is not None
            x, y, w, h = (float(n) * drawing.dpi / 72 for n in name.split("_")[1:])
            assert x - 2 <= box.x0 <= box.x1 <= x + w + 2, (figure.stem, name)
            assert y - 2 <= high - box.y1 <= high - box.y0 <= y + h + 2, (figure.stem, name)


@pytest.mark.parametrize(
    "user",
    [
        {"text.usetex": True},  # would need LaTeX, and lets it read names as commands
        {"font.family": "None such", "savefig.bbox": "tight", "interactive": True},
    ],
)
def test_what_the_user_set_in_matplotlib_neither_shows_nor_changes(
    drawn: list[ReportFigure], user: dict[str, Any]
) -> None:
    with matplotlib.rc_context(user):
        before = matplotlib.rcParams.copy()
        assert dataclasses.replace(drawn[0]).files == drawn[0].files
        assert matplotlib.rcParams.copy() == before


@pytest.mark.parametrize(
    ("package", "named"),
    [("report.figures", "none_such"), ("report.figures", "svg"), ("data", "none_such")],
)
def test_a_backend_that_is_not_installed_stops_nothing(package: str, named: str) -> None:
    """Colab hands MPLBACKEND to processes of other environments; one that exists is kept."""
    code = (
        f"import os, reality_check.{package}, matplotlib\n"
        "print(os.environ['MPLBACKEND'], dict.get(matplotlib.rcParams, 'backend'))"
    )
    environment = {**os.environ, "MPLBACKEND": named}
    said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert said.startswith(named)
    assert said.rstrip().endswith(" svg") == (named == "svg")


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
    texts = [text.get_text() for text in axes.texts]
    assert texts[:4] == list(summary.methods), "a name above each row"
    assert texts[4:] == ["no results yet"] * 3


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (("hard", "easy", "hard"), ["hard", "easy"]),
        ((True, False, True), ["True", "False"]),
        ((None, "a", None), ["None", "a"]),
    ],
)
def test_parameters_that_are_no_numbers_are_drawn_by_name(
    values: tuple[Any, ...], labels: list[str]
) -> None:
    trials = tuple(
        TrialRecord(i, "complete", value=0.1 * (i + 1), params={"x": value})
        for i, value in enumerate(values)
    )
    lost = TrialRecord(3, "complete", value=0.0, params={"x": values[1]}, diverged="NaN")
    figure = method_figure(
        MethodResults("m", "L", (*trials, lost), searched=("x",)), (), metric_of(PRIMARY)
    )
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == labels
    points, crosses, winner = axes.lines
    shown = [list(map(str, np.asarray(line.get_xdata()))) for line in (points, crosses, winner)]
    names = [str(value) for value in values]
    assert shown == [names, [names[1]], [names[2]]], "the last trial is the best"
