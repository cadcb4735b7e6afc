"""A document with the tables and the references compiles, and everything fits its page."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reality_check.comparable import comparable_tables
from reality_check.config import load_experiment
from reality_check.report._analysis import Analysis
from reality_check.report._summary import Summary
from reality_check.report.latex import escape, paired_tex, tables_tex
from reality_check.report.references import references_bib
from reality_check.results import ExperimentResults

DOCUMENT = r"""
\documentclass{article}
\usepackage{booktabs}
\usepackage{longtable}
\begin{document}
\input{tables}
\nocite{*}
\bibliographystyle{plain}
\bibliography{references}
\end{document}
"""
#: Names as long as the package's own are, instead of the fixture's awkward ones.
LONG = {
    "warped": "stop_gradient_softmax",
    "my_loss_50%": "multi_similarity_miner",
    "<b>x</b>": "proxy_nca_plus_plus",
    "late & slow": "cosface",
}


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
    text = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, text[-3000:]
    return text


def write_tables(results: ExperimentResults, folder: Path) -> str:
    """Both files as the report writes them, without its figures; the tables are returned."""
    summary = Summary(results)
    text = tables_tex(summary) + paired_tex(Analysis(summary))
    (folder / "tables.tex").write_text(text, encoding="utf-8")
    (folder / "references.bib").write_text(references_bib(results), encoding="utf-8")
    return text


def compile_document(results: ExperimentResults, folder: Path) -> str:
    """The log of the last pass over the report's tables and references."""
    write_tables(results, folder)
    (folder / "paper.tex").write_text(DOCUMENT, encoding="utf-8")
    latex = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper")
    run(folder, *latex)
    said = run(folder, "bibtex", "paper")
    assert "Warning" not in said, said
    run(folder, *latex)
    return run(folder, *latex)


def renamed(results: ExperimentResults, names: dict[str, str]) -> ExperimentResults:
    rows = (dataclasses.replace(row, method=names[row.method]) for row in results.rows)
    methods = (dataclasses.replace(m, name=names[m.name]) for m in results.methods)
    return dataclasses.replace(results, rows=tuple(rows), methods=tuple(methods))


@pytest.mark.latex
def test_awkward_names_compile(results: ExperimentResults, tmp_path: Path) -> None:
    name = 'a "name" of \\ ~ ^ | < > & % $ # _ { } – … é λ 名 with @'
    log = compile_document(dataclasses.replace(results, name=name), tmp_path)
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")
    assert "undefined" not in log


@pytest.mark.latex
def test_tables_fit_a_page(asked: ExperimentResults, tmp_path: Path) -> None:
    published = comparable_tables(load_experiment("cub200_mlrc"))
    long = dataclasses.replace(renamed(asked, LONG), published=published)
    log = compile_document(long, tmp_path)
    assert "longtable" in (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert "Overfull" not in log
    assert "Float too large" not in log
    assert "undefined" not in log


@pytest.mark.latex
def test_an_experiment_that_has_not_begun_compiles(build: Any, tmp_path: Path) -> None:
    empty = dataclasses.replace(build({}), rows=(), baselines=())
    compile_document(empty, tmp_path)


def test_what_pdflatex_does_not_know_is_replaced() -> None:
    assert escape('a "b" – λ é\n&') == r"a ''b'' -- ? é \&"


def test_every_group_has_its_rows_once(asked: ExperimentResults, tmp_path: Path) -> None:
    published = comparable_tables(load_experiment("cub200_mlrc"))
    text = write_tables(dataclasses.replace(renamed(asked, LONG), published=published), tmp_path)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1
    long = text.partition(r"\begin{longtable}")[2].partition(r"\end{longtable}")[0]
    assert re.findall(r"\\emph\{(\w+)\}", long) == ["ensemble", "aggregate"]
    cosface = re.findall(r"cosface & published & (26\.70) \$\\pm\$ 0\.23", long)
    assert cosface == ["26.70"]
