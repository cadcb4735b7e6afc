"""The comparison table, the CSV files and LaTeX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.welch import welch_difference

from reality_check.config.metrics import METRICS
from reality_check.report.render.latex import escape, tables_tex
from reality_check.report.summary import Summary
from reality_check.report.tables import COLUMNS, comparison_table, csv_of
from reality_check.results import ExperimentResults, ResultRow
from reality_check.statistics import holm, t_interval


def test_csv_is_exact() -> None:
    rows = [
        ResultRow("e", "warped", "ensemble", 0, "r_precision", 0.1 + 0.2, search=2, trial=7),
        ResultRow("e", 'a "quoted", name', "complete", 1, "precision_at_1", np.float64(1e-17)),
    ]
    assert csv_of(COLUMNS, (row.record().values() for row in rows)) == (
        "experiment,method,category,search,trial,reproduction,metric,value\n"
        "e,warped,ensemble,2,7,0,r_precision,0.30000000000000004\n"
        'e,"a ""quoted"", name",complete,,,1,precision_at_1,1e-17\n'
    )


def test_best_and_close_follow_the_tests_on_all_pairs(finished: ExperimentResults) -> None:
    summary = Summary(finished)
    for category in summary.categories:
        table = comparison_table(summary, category)
        for column, metric in enumerate(METRICS):
            values = {
                method: [
                    row.value
                    for row in finished.rows
                    if (row.method, row.category, row.metric) == (method, category, metric)
                ]
                for method in summary.methods
            }
            best = max(values, key=lambda m: np.mean(values[m]))
            pairs = [(a, b) for a in values for b in values if a < b]
            p = holm([welch_difference(values[a], values[b]).p_value or 0 for a, b in pairs])
            far = {frozenset(pair) for pair, value in zip(pairs, p, strict=True) if value < 0.05}
            for row in table.rows[: len(values)]:
                cell = row.cells[column]
                assert cell.interval is not None
                interval = t_interval(values[row.method])
                assert (cell.interval.mean, cell.interval.n) == (interval.mean, interval.n)
                assert cell.interval.half_width == pytest.approx(interval.half_width)
                assert cell.best == (row.method == best)
                expected = row.method != best and frozenset((row.method, best)) not in far
                assert cell.close == expected


def test_n_says_what_is_planned_while_runs_are_missing(build: Any) -> None:
    summary = Summary(build({"warped": 5, "my_loss_50%": 1}))
    sizes = {row.method: row.n for row in comparison_table(summary, "complete").rows}
    assert sizes == {
        "warped": "5",
        "my_loss_50%": "1 of 5",
        "<b>x</b>": "0 of 5",
        "late & slow": "0 of 5",
    }


def test_a_method_alone_is_not_called_the_best(build: Any) -> None:
    table = comparison_table(Summary(build({"warped": 5})), "ensemble")
    assert not any(cell.best or cell.close for row in table.rows for cell in row.cells)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my_loss_50%", r"my\_loss\_50\%"),
        ("a\\b", r"a\textbackslash{}b"),
        ("{x} & $y$ #1", r"\{x\} \& \$y\$ \#1"),
        ("two\nlines ~^", r"two lines \textasciitilde{}\textasciicircum{}"),
        ("<b>", r"\textless{}b\textgreater{}"),
        ("«é» ø ł", r"$\ll$é$\gg$ ø ł"),
        ("Ąđðþ\x01\x80ŋ", "???????"),
    ],
)  # fmt: skip
def test_latex_escapes(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_latex_balances(results: ExperimentResults) -> None:
    text = tables_tex(Summary(results))
    assert re.findall(r"\\begin\{([\w*]+)\}", text) == ["table*", "tabular"] * 2
    assert re.findall(r"\\end\{([\w*]+)\}", text) == ["tabular", "table*"] * 2
    text = text.partition(r"\end{table*}")[0] + r"\end{table*}"
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    assert r"my\_loss\_50\%" in text
    assert "<b>" not in text
    for line in text.splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == len(METRICS) + 1
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert not re.search(r"(?<!\\)%", body)
