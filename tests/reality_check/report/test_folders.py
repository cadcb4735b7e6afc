"""One report of several output folders: in one table, or side by side where they differ."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from reality_check import api as running
from reality_check.api import report_folders
from reality_check.cli.main import main
from reality_check.report.writing import write_report
from reality_check.results import ExperimentResults
from reality_check.utils.errors import UsageError


@pytest.fixture(scope="module")
def kinds(build: Any) -> dict[str, ExperimentResults]:
    """Results by the name of their folder: two comparable, one not."""
    whole = build()
    # Without searches there is less to draw.
    methods = tuple(dataclasses.replace(m, search=(), searched=()) for m in whole.methods)
    first = dataclasses.replace(whole, methods=methods)
    late = dataclasses.replace(first.methods[3], name="mine")
    rows = [dataclasses.replace(r, method="mine") for r in first.rows if r.method == "late & slow"]
    config = copy.deepcopy(first.config)
    config["methods"] = [{"name": "mine"}, {"name": "warped"}]
    second = dataclasses.replace(
        first,
        name="my_experiment",
        methods=(late, first.methods[0]),
        rows=(*rows, *(r for r in first.rows if r.method == "warped")),
        config=config,
    )
    other = copy.deepcopy(first.config)
    other["protocol"]["search"]["trials"] = 50
    other["model"] = {"trunk": "resnet50 <b>"}
    third = dataclasses.replace(first, name="elsewhere", config=other)
    return {"first": first, "second": second, "third": third}


@pytest.fixture
def loaded(kinds: dict[str, ExperimentResults], monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders need not be there to be loaded."""
    monkeypatch.setattr(running, "load_results", lambda folder: kinds[Path(folder).name])


def plain(text: str) -> str:
    """The words of a page, without its style and script."""
    text = re.sub(r"<(style|script)>.*?</\1>", " ", text, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", text.replace("<wbr>", "")).split())


@pytest.mark.usefixtures("loaded", "undrawn")
def test_comparable_folders_stand_in_one_table(tmp_path: Path) -> None:
    (whole,) = report_folders(["runs/first", "runs/second"], tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    names = ["warped (first)", "my_loss_50%", "<b>x</b>", "late & slow", "mine", "warped (second)"]
    assert [method.name for method in whole.methods] == names
    assert page.count('data-category="ensemble"') == 1
    words = plain(page)
    assert "awkward_names + my_experiment" in words
    assert "The methods come from 2 output folders" in words
    assert "Which folder holds which methods." in words
    assert "reality-check run runs/second/experiment.yaml --out again_2" in words
    row = re.search(r'<th scope="row">mine<span class="origin">second</span></th>', page)
    assert row is not None, "the table says where a method comes from"
    assert '(first)<span class="origin">' not in page, "and says it once"
    assert "<b>x" not in page
    assert (tmp_path / "results.csv").read_text().count("warped (second)") == 3 * 3 * 5
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert "## Output folders" in markdown
    assert "reality-check report again_1 again_2 --out DIR" in markdown
    assert not (tmp_path / "group_1").exists()


@pytest.mark.usefixtures("loaded", "only_svg")
def test_other_folders_are_grouped_and_what_differs_is_said(tmp_path: Path) -> None:
    found = report_folders(["runs/first", "runs/third", "runs/second"], tmp_path)
    assert [results.name for results in found] == ["awkward_names + my_experiment", "elsewhere"]
    page = (tmp_path / "report.html").read_text("utf-8")
    words = plain(page)
    assert "3 folders in 2 groups." in words
    assert "their numbers are not comparable" in words
    assert "protocol.search.trials 8 50" in words
    assert "Group 1: first and second" in words
    assert "Group 2: third" in words
    assert page.count('data-category="MAP@R on the test classes"') == 2, "a table for each"
    assert re.findall(r'href="(group_[^"]+)"', page) == [f"group_{i}/report.html" for i in (1, 2)]
    for number in (1, 2):
        assert (tmp_path / f"group_{number}" / "report.html").exists()
        assert (tmp_path / f"group_{number}" / "results.csv").exists()
    assert not (tmp_path / "results.csv").exists(), "no file mixes them"
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", page)]
    assert max(b - a for a, b in itertools.pairwise(levels)) == 1
    assert "<b>" not in page
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert "| protocol.search.trials | 8 | 50 |" in markdown
    assert "(group_2/report.md)" in markdown


@pytest.mark.usefixtures("loaded", "undrawn")
def test_the_report_of_a_group_of_one_folder_names_that_folder(tmp_path: Path) -> None:
    report_folders(["runs/first", "runs/my/third"], tmp_path)
    for name in ("report.md", "report.html"):
        text = (tmp_path / "group_2" / name).read_text("utf-8")
        words = plain(text) if name.endswith("html") else text
        assert "reality-check run runs/my/third/experiment.yaml --out again" in words
        assert "In the folder of this report" not in words
        assert "runs/my/third" in words.partition("Output folders")[2]
        assert "stand in one table" not in words


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("loaded", "undrawn")
def test_a_report_replaces_the_one_before_it_whatever_its_form(tmp_path: Path) -> None:
    one, other, both = (
        ["runs/first", "runs/second"],
        ["runs/first", "runs/third"],
        tmp_path / "both",
    )
    mine = [both / "mine.csv", both / "figures" / "mine.png", both / "group_2" / "notes.txt"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    left = {str(path.relative_to(both)) for path in mine}
    report_folders(one, both)
    whole = below(both) - left
    report_folders(other, both)
    report_folders(other, tmp_path / "fresh")
    assert below(both) == below(tmp_path / "fresh") | left
    report_folders(one, both)
    assert below(both) == whole | left
    report_folders(one, tmp_path / "fresh")
    assert below(tmp_path / "fresh") == whole
    assert not list((tmp_path / "fresh").glob("group_*"))


@pytest.mark.usefixtures("loaded", "undrawn")
def test_files_that_no_report_wrote_stay(tmp_path: Path) -> None:
    names = ["results.csv", "tables.tex", "figures/curves_mine.png", "group_9/report.html"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    report_folders(["runs/first", "runs/third"], tmp_path)
    assert {(tmp_path / name).read_text() for name in names} == {"mine"}


@pytest.mark.usefixtures("loaded", "undrawn")
def test_an_output_folder_keeps_its_own_report(
    kinds: dict[str, ExperimentResults], tmp_path: Path
) -> None:
    run = tmp_path / "group_2"
    write_report(kinds["third"], run)
    (run / "experiment.yaml").write_text("name: x\n")
    before = below(run)
    report_folders(["runs/first", "runs/second"], tmp_path)
    assert below(run) == before
    with pytest.raises(UsageError, match="group_2 is the output folder of an experiment"):
        report_folders(["runs/first", "runs/third"], tmp_path)
    assert below(run) == before
    # A method of an experiment may have such a name too, and its records any content.
    inside = run / "group_1"
    write_report(kinds["first"], inside)
    before = below(run)
    write_report(kinds["third"], run)
    assert below(run) == before


@pytest.mark.usefixtures("loaded", "undrawn")
def test_the_command_names_the_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "both"
    assert main(["report", "runs/first", "runs/third", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "2 groups whose numbers are not comparable; the report says why." in said
    assert f"Report: {out / 'report.html'}" in said


@pytest.mark.parametrize(
    "given",
    [["a", "b"], ["a", "--out", "x"], ["a", "b", "--out", "x", "--compare", "published"]],
    ids=["no --out", "one folder", "with --compare"],
)
def test_wrong_usage_is_said_in_a_sentence(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *given]) == 2
    assert "reality-check report DIR DIR ... --out DIR" in capsys.readouterr().err


def test_no_output_folder_is_overwritten_and_none_named_twice(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: x\n")
    with pytest.raises(UsageError, match="is the output folder of an experiment"):
        report_folders(["a", "b"], tmp_path)
    with pytest.raises(UsageError, match="named twice"):
        report_folders(["a", "a"], tmp_path / "out")
    with pytest.raises(UsageError, match=r"there is no .*neither; name a pack"):
        report_folders([tmp_path / "neither", tmp_path / "nor"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"it has no experiment\.yaml"):
        report_folders([tmp_path / "empty", tmp_path / "nor"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
