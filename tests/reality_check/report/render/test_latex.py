"""A document with the tables and the references compiles, and everything fits its page."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reality_check.report.render.latex import escape, tables_tex
from reality_check.report.render.references import references_bib
from reality_check.report.summary import Summary
from reality_check.results import ExperimentResults

DOCUMENT = r"""
\documentclass[OPTIONS]{article}
\usepackage{booktabs}
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
    """Write both files without the figures of a report; return the tables."""
    text = tables_tex(Summary(results))
    (folder / "tables.tex").write_text(text, encoding="utf-8")
    (folder / "references.bib").write_text(references_bib(results), encoding="utf-8")
    return text


def compile_document(results: ExperimentResults, folder: Path, options: str = "") -> str:
    """The log of the last pass over the report's tables and references."""
    write_tables(results, folder)
    document = DOCUMENT.replace("OPTIONS", options)
    (folder / "paper.tex").write_text(document, encoding="utf-8")
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
    name = 'a "name" of \\ ~ ^ | < > & % $ # _ { } – … é αλψω ΓΥΩ → ← 名 with @'
    log = compile_document(dataclasses.replace(results, name=name), tmp_path)
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")
    assert "undefined" not in log


@pytest.mark.latex
def test_every_character_of_latin_and_greek_scripts_compiles(
    results: ExperimentResults, tmp_path: Path
) -> None:
    every = "".join(map(chr, (*range(1, 0x250), *range(0x391, 0x3CA))))
    log = compile_document(dataclasses.replace(results, name=every), tmp_path)
    assert "Missing character" not in log


@pytest.mark.latex
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_tables_fit_a_page(asked: ExperimentResults, tmp_path: Path, options: str) -> None:
    log = compile_document(renamed(asked, LONG), tmp_path, options)
    assert "Overfull" not in log
    assert "Float too large" not in log
    assert "undefined" not in log


@pytest.mark.latex
def test_an_experiment_that_has_not_begun_compiles(build: Any, tmp_path: Path) -> None:
    empty = dataclasses.replace(build({}), rows=(), baselines=())
    compile_document(empty, tmp_path)


def test_what_pdflatex_does_not_know_is_replaced() -> None:
    assert escape('a "b" – 名 é\n&') == r"a ''b'' -- ? é \&"
    assert escape("λ → Ω") == r"$\lambda$ $\to$ $\Omega$"


def test_every_group_has_its_rows_once(asked: ExperimentResults, tmp_path: Path) -> None:
    text = write_tables(renamed(asked, LONG), tmp_path)
    tables = text.split(r"\begin{table*}")[1:]
    assert [table.count(r"\end{table*}") for table in tables] == [1, 1, 1]
    for table in tables[:2]:
        assert table.count("cosface &") == 3, "once in each category"
