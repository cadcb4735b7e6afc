"""The whole report: files, order, escaping, and unfinished experiments."""

from __future__ import annotations

import base64
import csv
import dataclasses
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reality_check.config.metrics import METRICS
from reality_check.report.analysis import Analysis
from reality_check.report.render.html import report_html
from reality_check.report.render.latex import tables_tex
from reality_check.report.render.markdown import report_md
from reality_check.report.sections import report_sections
from reality_check.report.sections.overview import overview_facts
from reality_check.report.summary import Summary
from reality_check.report.tables import comparison_table, comparison_tables
from reality_check.report.writing import write_report
from reality_check.results import (
    Cost,
    Deviation,
    ExperimentResults,
    MethodResults,
    ResultRow,
    TrialRecord,
)

NONE_SENTENCE = "No deviations from mlrc."


class Page(HTMLParser):
    """Checks nesting, collects attributes and the text outside styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "wbr", "img", "input"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.words.append(data)


def as_html(results: ExperimentResults) -> Page:
    return Page(report_html(results.name, report_sections(Analysis(Summary(results)))))


def as_md(results: ExperimentResults) -> str:
    return report_md(results.name, report_sections(Analysis(Summary(results))))


def written(results: ExperimentResults, folder: Path) -> Page:
    write_report(results, folder)
    return Page((folder / "report.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(drawn_report: Path) -> Page:
    return Page((drawn_report / "report.html").read_text("utf-8"))


def test_every_file_is_written_and_nothing_else(drawn_report: Path) -> None:
    assert sorted(os.listdir(drawn_report)) == [
        "baselines.csv",
        "comparisons.csv",
        "figures",
        "references.bib",
        "report.html",
        "report.md",
        "results.csv",
        "summary.json",
        "tables.tex",
        "trials.csv",
    ]
    stems = {path.stem for path in (drawn_report / "figures").iterdir()}
    assert len(stems) == 4 + 4
    assert len(os.listdir(drawn_report / "figures")) == 4 + 8


def test_the_same_results_give_the_same_files(
    build: Any, drawn_report: Path, tmp_path: Path
) -> None:
    write_report(build(), tmp_path)
    first = [path for path in sorted(drawn_report.rglob("*")) if path.is_file()]
    assert len(first) == 9 + 12
    for path in first:
        assert path.read_bytes() == (tmp_path / path.relative_to(drawn_report)).read_bytes()


def test_the_page_asks_for_nothing(page: Page, drawn_report: Path) -> None:
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base"}
    for _, attributes in page.seen:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
    text = (drawn_report / "report.html").read_text("utf-8")
    assert not re.search(r"https?://", text)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_names_are_escaped_everywhere(page: Page, drawn_report: Path) -> None:
    assert "b" not in {tag for tag, _ in page.seen}
    assert "<b>x</b>" in page.text
    assert "late & slow" in page.text
    assert "2.9 <cpu>" in page.text
    markdown = (drawn_report / "report.md").read_text("utf-8")
    outside = re.sub(r"```.*?```", "", markdown, flags=re.S)
    assert not re.search(r"(?<!\\)<", outside)
    assert r"my\_loss\_50%" in outside


def test_every_table_of_the_markdown_is_rectangular(results: ExperimentResults) -> None:
    text = as_md(dataclasses.replace(results, facts=(("a|b", "c\nd"),)))
    width = None
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert width is None or cells is None or cells == width
        width = cells


def test_the_page_is_in_order_with_headings_captions_and_unique_ids(page: Page) -> None:
    headings = [
        "What deviates from the protocol",
        "All metrics",
        "Statistics",
        "Verdict",
        "Baselines",
        "Search and budget",
        "Method by method",
        "How it was run",
        "How to reproduce",
    ]
    text = page.text.partition(" How to reproduce ")[2]  # which is the last of the contents
    places = [text.index(f" {heading} ") for heading in headings]
    assert places == sorted(places)
    tags = [tag for tag, _ in page.seen]
    assert tags.count("h1") == 1
    assert tags.count("caption") == tags.count("table")
    for tag, attributes in page.seen:
        if attributes.get("class") == "panels":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]
        if tag == "svg":
            named = attributes.get("role") == "img" and attributes["aria-label"]
            assert named or attributes["aria-hidden"] == "true", "its panels are one picture"
    ids = [attributes["id"] for _, attributes in page.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "reality-check run experiment.yaml" in page.text
    assert "protocol: name: quick" in page.text


def test_the_box_lists_serious_deviations_first_and_opens_with_the_reduced_protocol(
    page: Page,
) -> None:
    text = page.text
    opening = text.index("The protocol “quick” is a reduced one")
    assert opening < text.index("Serious – reproductions") < text.index("search trials:")
    assert NONE_SENTENCE not in text


class Unfolded(Page):
    """The words of a page that are there before anything is unfolded, those in figures apart."""

    def handle_data(self, data: str) -> None:
        folds = self.open.count("details") - self.open.count("summary")
        if "main" in self.open and not folds and "svg" not in self.open:
            self.words.append(data)


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_few_words_before_anything_is_unfolded(queried: ExperimentResults) -> None:
    rows = tuple(row for row in queried.rows if row.method != "late & slow")
    three = dataclasses.replace(queried, methods=queried.methods[:3], rows=rows, protocol="quick")
    deviations = tuple(Deviation(f"key{i}", "It is another one.") for i in range(20))
    costs = tuple(Cost(m.name, "search", "cpu", 8, 1.0) for m in three.methods)
    three = dataclasses.replace(three, deviations=deviations, costs=costs)
    page = report_html(three.name, report_sections(Analysis(Summary(three))))
    count = len(" ".join(Unfolded(page).words).split())
    assert 300 < count <= 1500
    assert len(Page(page).text.split()) > 2 * count, "the rest is folded"


def test_every_trial_is_in_a_file_with_every_digit(
    drawn_report: Path, results: ExperimentResults
) -> None:
    with (drawn_report / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    trials = results.trials()
    assert len(rows) == len(trials) == 4 * 8 + 2 * (3 * 5 + 3)
    for row, trial in zip(rows, trials, strict=True):
        assert list(row) == list(trial)
        assert (row["method"], row["stage"], row["number"]) == (
            trial["method"], trial["stage"], str(trial["number"]),
        )  # fmt: skip
        for key in ("value", "seconds", "params.loss.scale"):
            assert row[key] == ("" if trial[key] is None else repr(trial[key]))


@pytest.mark.usefixtures("undrawn")
def test_the_box_folds_many_small_deviations_but_no_serious_one(
    results: ExperimentResults,
) -> None:
    serious = tuple(Deviation(f"big{i}", "It matters.", serious=True) for i in range(8))
    small = tuple(Deviation(f"key{i}", f"key{i} is 1; mlrc has 2.") for i in range(9))
    changed = dataclasses.replace(results, deviations=small + serious)
    text = as_html(changed).text
    fold = text.index("9 further deviations")
    assert text.index("Serious – big7: It matters.") < fold < text.index("key0 is 1; mlrc has 2.")
    assert "key0: key0" not in text
    assert "- **key0** is 1; mlrc has 2." in as_md(changed)


@pytest.mark.usefixtures("undrawn")
def test_the_box_of_a_clean_run(finished: ExperimentResults) -> None:
    page = as_html(finished)
    assert NONE_SENTENCE in page.text
    assert "Not finished" not in page.text
    assert "Preliminary" not in page.text
    assert NONE_SENTENCE in as_md(finished)
    assert any(a.get("class") == "box clean" for _, a in page.seen)


def test_the_overview_counts_what_is_done(results: ExperimentResults) -> None:
    started = tuple(TrialRecord(n, "running") for n in range(4))
    trials = (TrialRecord(0, "running"), *results.methods[0].search[:3])
    warped = dataclasses.replace(results.methods[0], reproductions=started, final=(), search=trials)
    facts = dict(overview_facts(Summary(dataclasses.replace(results, methods=(warped,)))))
    assert facts["Search"] == "3 trials per method"
    assert "Reproductions" not in facts
    facts = dict(overview_facts(Summary(results)))
    assert facts["Reproductions"] == "2 to 5 per method", "and not the third that was started"
    assert facts["Search"] == "8 trials per method"


def test_baselines_are_rows_of_the_first_category(results: ExperimentResults) -> None:
    rows = tuple(
        ResultRow("e", name, "aggregate", run, metric, value)
        for metric in METRICS
        for name, run, value in (
            ("raw pixels", 0, 0.1),
            ("untrained", 0, 0.2),
            ("untrained", 1, 0.21),
        )
    )
    summary = Summary(dataclasses.replace(results, baselines=rows))
    first, *others = comparison_tables(summary)
    methods = len(summary.methods)
    shown = [
        (row.method, *(cell.text for cell in row.cells), row.n) for row in first.rows[methods:]
    ]
    # t(0.975, 1) = 12.7062, s / sqrt(2) = 0.005
    assert shown == [
        ("raw pixels", "10.00", "10.00", "10.00", "1"),
        ("untrained", *["20.50 ± 6.35"] * 3, "2"),
    ]
    assert not any(cell.best or cell.close for row in first.rows[methods:] for cell in row.cells)
    assert all(len(table.rows) == methods for table in others)
    assert r"\emph{raw pixels} & 10.00" in tables_tex(summary)


@pytest.mark.usefixtures("undrawn")
def test_other_metrics_have_a_table_of_their_own_for_each_category(
    asked: ExperimentResults, tmp_path: Path
) -> None:
    write_report(asked, tmp_path)
    page = Page((tmp_path / "report.html").read_text()).text
    text = (tmp_path / "report.md").read_text()
    tex = (tmp_path / "tables.tex").read_text()
    # Five values 0.1 .. 0.5: t(0.975, 4) x sqrt(0.025 / 5) = 0.1963.
    assert page.count("30.00 ± 19.63") == 3 * 4
    assert text.count("30.00** ± 19.63") + text.count(" 30.00 ± 19.63") == 3 * 4
    assert "| Method | R@2 | AMI | separability (ratio) | n |" in text
    assert text.count("3.000** ± 1.963") == 3 * 4, "all means are the best, and no percentages"
    assert text.count("-15.00") == 3 * 4
    for written in (page, text):
        assert "Other metrics" in written
        assert "nothing was selected by them" in written
        assert "NMI" not in written.split("Search and budget")[0], "of which there are no values"
    assert tex.count(r"\begin{table*}") == tex.count(r"\end{table*}") >= 3
    assert r"Method & R@2 & AMI & separability (ratio) & $n$ \\" in tex
    assert r"\textbf{3.000} $\pm$ 1.963" in tex
    lines = (tmp_path / "results.csv").read_text().splitlines()
    assert sum(",recall_at_2," in line for line in lines) == 4 * 3 * 5
    assert "| *raw pixels* | 25.00 | 50.00 | 1.500 | 1 |" in text


@pytest.mark.usefixtures("undrawn")
def test_without_other_metrics_nothing_is_said_of_them(
    finished: ExperimentResults, tmp_path: Path
) -> None:
    write_report(finished, tmp_path)
    for name in ("report.html", "report.md", "tables.tex"):
        assert "ther metrics" not in (tmp_path / name).read_text().replace("for the other m", "")
    text = (tmp_path / "tables.tex").read_text()
    assert text.count(r"\begin{table*}") == 2, "the comparison, and the pairs"


def test_a_ratio_that_is_not_finite_says_so(asked: ExperimentResults) -> None:
    rows = [
        dataclasses.replace(row, value=math.inf) if row.metric == "separability" else row
        for row in asked.rows
    ]
    text = as_md(dataclasses.replace(asked, rows=tuple(rows)))
    assert text.count("not finite") == 3 * 4


@pytest.mark.usefixtures("undrawn")
def test_galleries_are_copied_and_shown_with_what_they_show(
    finished: ExperimentResults, tmp_path: Path
) -> None:
    drawn = tmp_path / "gallery.png"
    drawn.write_bytes(b"\x89PNG made up")
    methods = tuple(
        dataclasses.replace(method, gallery=path)
        for method, path in zip(
            finished.methods, (drawn, None, tmp_path / "lost.png", None), strict=True
        )
    )
    page = written(dataclasses.replace(finished, methods=methods), tmp_path / "out")
    images = [attributes for tag, attributes in page.seen if tag == "img"]
    encoded = base64.b64encode(drawn.read_bytes()).decode()
    assert [image["src"] for image in images] == [f"data:image/png;base64,{encoded}"]
    assert "by warped" in str(images[0]["alt"])
    assert "the query" in page.text
    assert "dashed red" in page.text
    assert (tmp_path / "out/figures/gallery_warped.png").read_bytes() == drawn.read_bytes()
    text = (tmp_path / "out/report.md").read_text()
    assert text.count("](figures/gallery_") == text.count("](figures/gallery_warped.png)") == 1
    without = written(finished, tmp_path / "none")
    assert "Nearest neighbours" not in without.text


@pytest.mark.usefixtures("undrawn")
def test_a_gallery_of_any_method_is_a_file_of_figures(
    finished: ExperimentResults, tmp_path: Path
) -> None:
    drawn = tmp_path / "gallery.png"
    drawn.write_bytes(b"\x89PNG made up")
    name = "warped (runs/one)"
    methods = (dataclasses.replace(finished.methods[0], name=name, gallery=drawn),)
    written(dataclasses.replace(finished, methods=methods), tmp_path / "out")
    assert not [path for path in (tmp_path / "out/figures").iterdir() if path.is_dir()]
    text = (tmp_path / "out/report.md").read_text("utf-8")
    (link,) = re.findall(r"\]\((figures/gallery_[^)]*)\)", text)
    assert (tmp_path / "out" / link).read_bytes() == drawn.read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_the_other_geometry_is_in_the_files_alone(finished: ExperimentResults) -> None:
    extra = tuple(dataclasses.replace(row, metric=row.metric + "_raw") for row in finished.rows)
    both = dataclasses.replace(finished, rows=finished.rows + extra)
    assert (
        comparison_table(Summary(both), "ensemble").rows
        == comparison_table(Summary(finished), "ensemble").rows
    )


def nothing(results: ExperimentResults) -> ExperimentResults:
    return ExperimentResults("empty", "mlrc", "mlrc", False, methods=(), rows=())


def no_trials_yet(results: ExperimentResults) -> ExperimentResults:
    methods = tuple(MethodResults(m.name, m.loss, searched=m.searched) for m in results.methods)
    return dataclasses.replace(results, methods=methods, rows=(), baselines=(), facts=())


def all_diverged(results: ExperimentResults) -> ExperimentResults:
    trials = tuple(TrialRecord(i, "complete", value=0.0, diverged="NaN") for i in range(8))
    method = MethodResults("warped", "L", search=trials, searched=("x",))
    return dataclasses.replace(results, methods=(method,), rows=())


def running_and_failed(results: ExperimentResults) -> ExperimentResults:
    trials = (
        TrialRecord(0, "running"),
        TrialRecord(1, "failed", attempts=3),
        TrialRecord(2, "waiting"),
    )
    method = MethodResults("warped", "L", search=trials, searched=("x",))
    return dataclasses.replace(results, methods=(method,), rows=(), config={})


def one_run(results: ExperimentResults) -> ExperimentResults:
    return dataclasses.replace(results, rows=tuple(r for r in results.rows if r.reproduction == 0))


def not_finite(results: ExperimentResults) -> ExperimentResults:
    rows = tuple(
        dataclasses.replace(r, value=math.nan) if r.method == "warped" else r for r in results.rows
    )
    return dataclasses.replace(results, rows=rows)


def odd_config(results: ExperimentResults) -> ExperimentResults:
    config: dict[str, Any] = {"protocol": 3, "path": Path("x"), "pair": (1, {2: object})}
    return dataclasses.replace(results, config=config, protocol="mine")


def without_search(results: ExperimentResults) -> ExperimentResults:
    fixed = TrialRecord(0, "complete", value=0.3)
    return dataclasses.replace(results, methods=(MethodResults("fixed", "L", search=(fixed,)),))


def unknown_names(results: ExperimentResults) -> ExperimentResults:
    row = ResultRow("e", "nobody", "new category", 0, "new_metric", 0.5)
    return dataclasses.replace(results, rows=(*results.rows, row))


@pytest.mark.usefixtures("laid_out")
def test_a_report_has_neither_verdict_nor_interval_before_all_is_finished(
    queried: ExperimentResults, tmp_path: Path
) -> None:
    signs = ("†", "±", "95 %", "above", "leads", "Holm", "| **")
    assert all(sign in as_md(queried) for sign in signs)
    page = written(dataclasses.replace(queried, finished=False), tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert [sign for sign in signs if sign in text] == []
    assert "| warped | 23.00 | 28.02 | 27.08 | 5 |" in text
    for told in (page.text, text, (tmp_path / "summary.json").read_text()):
        assert "Not finished: these are scores so far." in told
    data = json.loads((tmp_path / "summary.json").read_text())
    assert {(row["low"], row["high"]) for row in data["results"]} == {(None, None)}
    assert data["verdicts"] == []
    assert len((tmp_path / "comparisons.csv").read_text().splitlines()) == 1
    tex = (tmp_path / "tables.tex").read_text()
    assert "Not finished, so without intervals and marks." in tex
    assert r"\pm" not in tex
    assert tex.count(r"\dagger") == 1  # in the caption


@pytest.mark.usefixtures("laid_out")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (nothing, "No results yet: no reproduction has been scored."),
        (nothing, "No deviations from mlrc so far."),
        (no_trials_yet, "no trial yet"),
        (all_diverged, "every trial diverged or failed"),
        (running_and_failed, "No results yet"),
        (one_run, "no test with fewer than three runs (n = 1 and 1)"),
        (not_finite, "not finite"),
        (odd_config, "The protocol is “mine”, measured here against “mlrc”."),
        (without_search, "1 (nothing to search)"),
        (unknown_names, "new category"),
    ],
)
def test_unfinished_and_odd_experiments_give_honest_reports(
    change: Any, expected: str, results: ExperimentResults, tmp_path: Path
) -> None:
    page = written(change(results), tmp_path)
    assert expected in page.text
    tex = (tmp_path / "tables.tex").read_text()
    pairs = "minus that of the others" in tex
    assert tex.count(r"\begin{table*}") == tex.count(r"\end{table*}") == 1 + pairs
