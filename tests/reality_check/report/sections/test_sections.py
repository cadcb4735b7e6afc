"""The sections: what they compute, and in one approved report word for word what they say."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.made_up_results import with_queries

from reality_check.config.described import Description
from reality_check.config.metrics import PRIMARY, metric_of
from reality_check.report.analysis import Analysis
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import method_figure
from reality_check.report.render.html import report_html
from reality_check.report.render.markdown import report_md
from reality_check.report.sections import report_sections
from reality_check.report.sections.agreement import agreement_section
from reality_check.report.sections.blocks import Bullets, Folded, PlainTable, Section
from reality_check.report.sections.classes import classes_section
from reality_check.report.sections.hours import cost_section
from reality_check.report.sections.methods import methods_section
from reality_check.report.sections.tuning import luck_section
from reality_check.report.summary import Summary
from reality_check.results import (
    ColumnValue,
    Cost,
    ExperimentResults,
    Importance,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)

MAP = "mean_average_precision_at_r"
APPROVED = Path(__file__).with_name("approved.md")


@pytest.fixture(autouse=True)
def drawn_at_once(laid_out: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure is laid out as soon as a section has it, whether or not a test looks at it."""
    make = ReportFigure.__init__

    def make_and_draw(figure: ReportFigure, *arguments: Any, **options: Any) -> None:
        make(figure, *arguments, **options)
        assert figure.files

    monkeypatch.setattr(ReportFigure, "__init__", make_and_draw)


def analysis(results: ExperimentResults) -> Analysis:
    return Analysis(Summary(results))


def texts(section: Section | None) -> list[str]:
    """Every sentence of a section, folded ones too."""
    assert section is not None
    found: list[str] = []
    blocks = list(section.blocks)
    for block in blocks:
        if isinstance(block, str):
            found.append(block)
        elif isinstance(block, Bullets):
            found += ["".join(line) for line in block.lines]
        elif isinstance(block, Folded):
            blocks += block.blocks
    return found


def runs_of(values: dict[str, list[float]], **changes: Any) -> ExperimentResults:
    rows = tuple(
        ResultRow("e", method, "ensemble", run, MAP, value)
        for method, found in values.items()
        for run, value in enumerate(found)
    )
    results = ExperimentResults("e", "mlrc", "mlrc", True, methods=(), rows=rows)
    return dataclasses.replace(results, **changes)


def test_the_uncertainty_of_one_method(queried: ExperimentResults) -> None:
    found = analysis(queried)
    assert set(found.uncertainties) == {
        (method, category)
        for method in Summary(queried).methods
        for category in ("aggregate", "ensemble", "complete")
    }
    assert found.unscored == ()
    assert found.test_classes == 24
    one = found.uncertainties["warped", "complete"]
    values = Summary(queried).samples("complete", MAP)["warped"]
    assert one.training.mean == one.classes.value == pytest.approx(np.mean(values))
    assert one.both is not None
    assert one.both.high - one.both.low > one.classes.high - one.classes.low
    assert one.design_effect > 1.5


def test_scores_that_are_missing_are_named_and_the_rest_still_shown(
    queried: ExperimentResults,
) -> None:
    assert queried.queries is not None
    whole = queried.queries

    def load(method: str, category: str, reproduction: int) -> np.ndarray | None:
        if (method, category, reproduction) == ("warped", "complete", 3):
            return None
        return whole.load(method, category, reproduction)

    part = QueryScores(whole.labels, whole.class_names, load)
    found = analysis(dataclasses.replace(queried, queries=part))
    assert found.unscored == (("warped", "complete"),)
    assert len(found.uncertainties) == 11
    for pair in found.summary.comparisons("complete"):
        has = ("complete", pair.better, pair.other) in found.differences
        assert has == ("warped" not in (pair.better, pair.other))
    assert texts(classes_section(found))[-1].startswith(
        "The scores of every query are missing or damaged for warped (complete), which"
    )


# -- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("low", [0.0052, 0.0011, 0.02])
def test_a_narrow_logarithmic_axis_has_ticks_to_read(low: float) -> None:
    draw = np.random.default_rng(0)
    rates = [low, *draw.uniform(low, 0.048, 7).tolist()]
    trials = tuple(
        TrialRecord(i, "complete", value=0.3, params={"rate": rate}) for i, rate in enumerate(rates)
    )
    method = MethodResults("m", "L", search=trials, searched=("rate",), logarithmic=("rate",))
    figure = method_figure(method, (), metric_of(PRIMARY))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    shown = [
        label.get_text()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high
    ]
    assert 2 <= len(shown) <= 4, "enough to read, and too few to overlap"


def learned(name: str, runs: int, folds: int = 2) -> MethodResults:
    """A method whose search and reproductions have curves; that of run 1 ends in NaN.

    Both networks that were not trained are better than any that was.
    """

    def values(run: int) -> tuple[float, ...]:
        return tuple(0.2 + fold / 10 + run / 100 for fold in range(folds))

    def curves(run: int) -> Any:
        ends = [(6, math.nan)] if run == 1 else []
        return tuple(((-1, 0.5), (0, 0.6), (2, 0.1), (4, top), *ends) for top in values(run))

    trial = TrialRecord(0, "complete", value=0.3, params={"x": 1}, curves=curves(0))
    again = tuple(
        TrialRecord(
            run, "complete", value=0.3, fold_values=values(run), curves=curves(run),
        )
        for run in range(runs)
    )  # fmt: skip
    complete = TrialRecord(0, "complete", value=0.2, params={"epochs": 20}, seconds=90.0)
    return MethodResults(name, "L", (trial,), again, (complete,), searched=("x",))


def test_learning_curves_are_of_every_fold_and_reproduction() -> None:
    method = learned("a b", 3)
    section = methods_section(Summary(runs_of({}, methods=(method,))))
    assert section is not None
    assert [figure.stem for figure in section.figures] == ["method_a_b"]
    # Means of 0.20, 0.21, 0.22, and a tenth more in the second fold.
    assert section.figures[0].alt.endswith("fold 0 21.00 and fold 1 31.00.")
    panels = method_figure(method, method.reproductions, metric_of(PRIMARY)).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["", "fold 0", "fold 1"]
    lines = [line for line in panels[2].lines if len(line.get_xdata()) > 1]  # type: ignore[arg-type]
    assert [list(map(float, line.get_ydata())) for line in lines[:3]] == [  # type: ignore[arg-type]
        pytest.approx([50.0, 60.0, 10.0, 30.0 + run]) for run in range(3)
    ]
    dots = [line for line in panels[2].lines if line.get_marker() == "o"]
    assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == [4] * 4, "it was trained"
    assert [line.get_linestyle() for line in lines] == ["-", "-", "-", "--"]


def test_methods_without_records_have_no_part() -> None:
    assert methods_section(Summary(runs_of({}, methods=(MethodResults("a", "L"),)))) is None


def test_cost_is_by_method_stage_and_device() -> None:
    costs = (
        Cost("a", "search", "cuda", 4, 2.5),
        Cost("a", "final", "cuda", 1, 0.25),
        Cost("a", "search", "cpu", 1, 0.5),
        Cost("", "baselines", "cpu", 2, 0.01),
    )
    section = cost_section(Summary(runs_of({}, costs=costs)))
    assert texts(section) == [
        "0.51 hours of CPU processes and 2.75 GPU hours in all, over 8 attempts."
    ]
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, PlainTable))
    assert table.rows == (
        ("a", "cuda", "2.50", "—", "0.25", "2.75", "5"),
        ("a", "cpu", "0.50", "—", "—", "0.50", "1"),
        ("baselines", "cpu", "—", "—", "—", "0.01", "2"),
    )
    assert cost_section(Summary(runs_of({}))) is None


# -- agreement -----------------------------------------------------------------------------------


def searched(name: str, values: list[float], again: list[float]) -> MethodResults:
    return MethodResults(
        name,
        "L",
        search=tuple(
            TrialRecord(i, "complete", value=v, params={"x": float(i + 1)})
            for i, v in enumerate(values)
        ),
        reproductions=tuple(TrialRecord(i, "complete", value=v) for i, v in enumerate(again)),
        searched=("x",),
    )


def test_winners_against_their_retrainings() -> None:
    a = searched("a", [0.40, 0.44, 0.41], [0.42, 0.43])
    b = searched("b", [0.30, 0.31], [0.315, 0.315])
    (line,) = texts(agreement_section(Summary(runs_of({}, methods=(a, b)))))
    assert line.startswith("1 of 2 winners scored above the mean of their retrainings")
    assert "by 0.50 points" in line
    assert agreement_section(Summary(runs_of({}))) is None


def test_agreement_over_methods_and_within_them() -> None:
    methods = tuple(
        searched(name, [best, 0.1], again)
        for name, best, again in (
            ("a", 0.44, [0.41, 0.42, 0.43]),
            ("b", 0.42, [0.40, 0.39, 0.38]),
            ("c", 0.40, [0.37, 0.36, 0.35]),
        )
    )
    tests = {"a": [0.25, 0.26, 0.27], "b": [0.23, 0.22, 0.21], "c": [0.24, 0.235, 0.23]}
    lines = texts(agreement_section(Summary(runs_of(tests, methods=methods))))
    assert "order 2 of 3 pairs the same way (Spearman 0.50, n = 3 methods, p = 1)" in lines[1]
    assert len(lines) == 2


# -- all of them ---------------------------------------------------------------------------------


def everything(results: ExperimentResults) -> ExperimentResults:
    """The same with hours, importance, a column of the user's own and one folder without scores."""
    first, second, third, last = results.methods
    latency = Description("latency", "ms", higher_is_better=False)
    changed = (
        dataclasses.replace(
            first,
            importance=Importance({"loss.scale": 0.62, "learning_rates.loss": 0.1}, 0.25, 8),
            columns=(ColumnValue("my_report.latency", latency, 1.23456),),
        ),
        dataclasses.replace(
            second,
            importance=Importance({"loss.scale": 0.2}, 0.25, 8),
            columns=(ColumnValue("my_report.latency", latency, problem="it returned nan"),),
        ),
        dataclasses.replace(third, searched=("loss.scale",), trained_parameters=12345),
        last,
    )
    costs = tuple(Cost(m.name, "search", "cuda", 8, 2.5) for m in results.methods)
    return dataclasses.replace(results, methods=changed, costs=costs)


def test_the_report_is_the_approved_one(results: ExperimentResults) -> None:
    """What changes on purpose is approved by ``APPROVE=1 pytest -k approved`` and a look at it."""
    sections = report_sections(analysis(everything(with_queries(results))))
    text = report_md("Approved", sections)
    if os.environ.get("APPROVE"):
        APPROVED.write_text(text, encoding="utf-8")
    assert text == APPROVED.read_text(encoding="utf-8")
    page = report_html("Approved", sections)
    for section in sections:
        assert f'<section id="{section.anchor}"' in page
        folded = [b.anchor for b in section.blocks if isinstance(b, Folded) and b.anchor]
        assert all(page.count(f'<details id="{anchor}"') == 1 for anchor in folded)
    drawn = sum(len(section.figures) for section in sections)
    assert page.count('<div class="panels"') == drawn


def test_sections_without_data_are_left_out() -> None:
    bare = report_sections(analysis(runs_of({})))
    assert [section.anchor for section in bare] == [
        *("overview", "box", "comparison", "statistics", "search", "facts", "again")
    ]


# -- what moves the scores -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "header", "cells", "what"),
    [
        (
            [(0.29, 0.31), (0.39, 0.41)],
            ("Searches", "Training"),
            ("7.00", "1.41"),
            "of what searches find, of the training of one winner",
        ),
        (
            [(0.3,), (0.4,)],
            ("Search and training",),
            ("7.07",),
            "of what one search finds and one training makes of it",
        ),
    ],
)
def test_searches_are_told_from_trainings_where_a_winner_has_several(
    runs: list[tuple[float, ...]], header: tuple[str, ...], cells: tuple[str, ...], what: str
) -> None:
    values = [(search, value) for search, found in enumerate(runs) for value in found]
    rows = tuple(
        ResultRow("e", "m", "aggregate", run, MAP, value, search=search, trial=0)
        for run, (search, value) in enumerate(values)
    )
    config = {"protocol": {"search": {"trials": 10}}}
    results = ExperimentResults("e", "p", "mlrc", True, (), rows, config=config)
    section = luck_section(Analysis(Summary(results)))
    assert section is not None
    (table,) = section.blocks
    assert isinstance(table, PlainTable)
    assert table.header == ("Method", "Category", *header)
    assert [row[2:] for row in table.rows] == [cells]
    assert what in table.caption
