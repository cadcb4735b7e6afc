"""One comparison a pair: the same numbers in the page, the CSV, the JSON, LaTeX and the figure."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.figures.comparison import differences_figure
from reality_check.report.render.latex import tables_tex
from reality_check.report.render.summary_json import summary_data
from reality_check.report.sections.blocks import Folded, PlainTable
from reality_check.report.sections.verdict import PAIR_KEYS, of_leader, verdict_section
from reality_check.report.summary import Summary
from reality_check.report.wording import points
from reality_check.report.writing import write_report
from reality_check.results import ExperimentResults, ResultRow
from reality_check.statistics import (
    estimate_difference,
    holm,
    percentile_interval,
    probability_of_improvement,
)


def tables(analysis: Analysis) -> list[PlainTable]:
    """The folded table of each category."""
    folded = [b for b in verdict_section(analysis).blocks if isinstance(b, Folded)]
    return [table for fold in folded for table in fold.blocks if isinstance(table, PlainTable)]


def test_pairs_are_compared_by_welch_and_corrected_together(finished: ExperimentResults) -> None:
    summary = Summary(finished)
    pairs, values = summary.comparisons("ensemble"), summary.samples("ensemble", PRIMARY)
    estimates = summary.estimates("ensemble")
    assert len(pairs) == 6
    for pair in pairs:
        expected = estimate_difference(estimates[pair.better], estimates[pair.other])
        assert pair.difference == expected
        assert pair.difference.mean >= 0
        assert pair.improvement == probability_of_improvement(
            values[pair.better], values[pair.other]
        )
    family = [pair for category in summary.categories for pair in summary.comparisons(category)]
    corrected = holm([pair.difference.p_value or 0.0 for pair in family])
    assert [pair.adjusted_p for pair in family] == corrected, "all categories together"
    best = max(values, key=lambda method: np.mean(values[method]))
    assert [pair.better for pair in of_leader(summary, "ensemble")] == [best] * 3


def test_every_file_has_the_same_numbers(queried: ExperimentResults, tmp_path: Path) -> None:
    analysis = Analysis(Summary(queried))
    summary = analysis.summary
    write_report(queried, tmp_path)
    with (tmp_path / "comparisons.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    records = summary_data(analysis)["verdicts"]
    shown = [row for table in tables(analysis) for row in table.rows]
    pairs = [(c, pair) for c in summary.categories for pair in summary.comparisons(c)]
    assert len(rows) == len(records) == len(shown) == len(pairs) == 18
    assert list(rows[0]) == list(PAIR_KEYS)
    for row, record, cells, (category, pair) in zip(rows, records, shown, pairs, strict=True):
        classes = analysis.differences[category, pair.better, pair.other]
        assert pair.improvement is not None
        expected = {
            "better": pair.better,
            "verdict": "above" if pair.distinct else "not distinguishable",
            "n_other": pair.difference.n[1],
            "difference": pair.difference.mean,
            "low": pair.difference.low,
            "any_classes_high": classes.high,
            "p": pair.difference.p_value,
            "holm_p": pair.adjusted_p,
            "pairs_tested": 18,
            "probability_of_improvement": pair.improvement.value,
            "probability_of_improvement_high": pair.improvement.high,
        }
        assert {key: record[key] for key in expected} == expected
        assert {key: row[key] for key in expected} == {k: str(v) for k, v in expected.items()}
        assert cells[:3] == (pair.better, pair.other, points(pair.difference.mean))
        assert cells[3] == f"{points(record['low'])} to {points(record['high'])}"
        assert cells[4] == f"{points(classes.low)} to {points(classes.high)}"
        assert cells[6].startswith(f"{pair.improvement.value:.2f} (")
        assert cells[7] == record["verdict"]


def test_the_latex_table_has_the_pairs_of_the_best(finished: ExperimentResults) -> None:
    text = tables_tex(Summary(finished)).split(r"\begin{table*}")[-1]
    rows = [line for line in text.splitlines() if len(re.findall(r"(?<!\\)&", line)) == 5]
    assert len(rows) == 1 + 3 * 3
    assert "−" not in text
    assert r"\textless{}b\textgreater{}" in text
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}")


def single(values: dict[str, list[float]]) -> Summary:
    """An experiment of one category."""
    rows = tuple(
        ResultRow("e", method, "ensemble", run, PRIMARY, value)
        for method, found in values.items()
        for run, value in enumerate(found)
    )
    return Summary(ExperimentResults("e", "mlrc", "mlrc", True, methods=(), rows=rows))


def test_of_single_runs_there_is_no_interval_anywhere() -> None:
    summary = single({"a": [0.3], "b": [0.2]})
    (record,) = summary_data(Analysis(summary))["verdicts"]
    assert record["low"] is record["p"] is record["any_classes_low"] is None
    (table,) = tables(Analysis(summary))
    assert table.rows[0][3:5] == ("—", "—")
    assert "minus that of the others" not in tables_tex(summary)
    assert verdict_section(Analysis(summary)).figures == []


def test_the_figure_has_the_differences_of_the_leader(queried: ExperimentResults) -> None:
    analysis = Analysis(Summary(queried))
    (drawn,) = verdict_section(analysis).figures
    assert drawn.stem == "differences"
    shown = {"ensemble": of_leader(analysis.summary, "ensemble")}
    axes = differences_figure(shown, analysis.differences).axes[0]
    assert axes.get_title(loc="left") == "ensemble: warped minus …"
    lines = [np.asarray(line.get_xdata(), dtype=float) for line in axes.lines[1:]]
    pair = shown["ensemble"][0]
    classes = analysis.differences["ensemble", pair.better, pair.other]
    assert lines[0] == pytest.approx([100 * classes.low, 100 * classes.high])
    assert lines[1] == pytest.approx(
        [100 * (pair.difference.low or 0), 100 * (pair.difference.high or 0)]
    )
    assert lines[2] == pytest.approx([100 * pair.difference.mean])


def test_other_classes_are_drawn_for_the_difference(queried: ExperimentResults) -> None:
    found = Analysis(Summary(queried))
    pair = found.summary.comparisons("ensemble")[0]
    assert queried.queries is not None
    load, labels = queried.queries.load, queried.queries.labels

    def scores(method: str) -> np.ndarray:
        loaded = [load(method, "ensemble", run) for run in range(5)]
        return np.mean([each[0] for each in loaded if each is not None], axis=0)

    gap = scores(pair.better) - scores(pair.other)
    by_class = np.array([gap[labels == c].sum() for c in range(24)])
    drawn = np.random.default_rng(0).integers(24, size=(5000, 24))
    means = by_class[drawn].sum(axis=1) / (5 * 24)
    values = Summary(queried).samples("ensemble", PRIMARY)
    squares = [np.var(values[name], ddof=1) / 5 for name in (pair.better, pair.other)]
    degrees = sum(squares) ** 2 / sum(square**2 / 4 for square in squares)
    noise = np.random.default_rng(1).standard_t(degrees, size=5000)
    spread = math.sqrt(sum(squares))
    expected = percentile_interval(means + spread * noise, pair.difference.mean, 24)
    bounds = found.differences["ensemble", pair.better, pair.other]
    assert dataclasses.astuple(bounds) == pytest.approx(dataclasses.astuple(expected))
    alone = found.uncertainties[pair.better, "ensemble"].classes
    assert bounds.high - bounds.low < alone.high - alone.low, "hard for both"
