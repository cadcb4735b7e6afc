"""A document with the tables and the references compiles, and everything fits its page."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reality_check.config import load_experiment
from reality_check.papers.published_comparison import comparable_tables
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
    published = comparable_tables(load_experiment("cub200_mlrc"))
    long = dataclasses.replace(renamed(asked, LONG), published=published)
    log = compile_document(long, tmp_path, options)
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
    published = comparable_tables(load_experiment("cub200_mlrc"))
    text = write_tables(dataclasses.replace(renamed(asked, LONG), published=published), tmp_path)
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 7
    captions = re.findall(r"Category (\w+)\. (\w+)", text)
    papers = ("Realigned", "A")
    assert captions == [(c, paper) for paper in papers for c in ("ensemble", "aggregate")]
    for category, figure in (("ensemble", "26.70"), ("aggregate", "21.21")):
        table = text.partition(f"Category {category}. A Metric")[2].partition(r"\end{table*}")[0]
        assert re.findall(r"cosface & published & ([\d.]+) \$\\pm", table) == [figure]
        assert table.count("cosface") == 1, "the name is said once for its three rows"
        assert table.count("& measured &") == 4
