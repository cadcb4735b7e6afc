"""One report of several output folders, in one table; of incomparable ones there is none."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from reality_check import api as running
from reality_check.api import report_folders
from reality_check.cli.main import main
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
    monkeypatch.setattr(running, "recorded_of", lambda path: path)
    monkeypatch.setattr(running, "collect", lambda path, **_: kinds[Path(path).name])


def plain(text: str) -> str:
    """The words of a page, without its style and script."""
    text = re.sub(r"<(style|script)>.*?</\1>", " ", text, flags=re.S)
    return " ".join(re.sub(r"<[^>]*>", " ", text.replace("<wbr>", "")).split())


@pytest.mark.usefixtures("loaded", "undrawn")
def test_comparable_folders_stand_in_one_table(tmp_path: Path) -> None:
    whole = report_folders(["runs/first", "runs/second"], tmp_path)
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


@pytest.mark.usefixtures("loaded")
def test_incomparable_folders_are_refused_and_what_differs_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        report_folders(["runs/first", "runs/second", "runs/third"], tmp_path / "both")
    said = str(raised.value)
    assert "runs/first and runs/third are not comparable" in said
    assert "protocol.search.trials is 8 first and 50 third" in said
    assert "--across" in said
    assert not (tmp_path / "both").exists()


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("loaded", "undrawn")
def test_a_report_replaces_the_one_before_it_and_keeps_other_files(tmp_path: Path) -> None:
    mine = [tmp_path / "mine.csv", tmp_path / "figures" / "mine.png"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    report_folders(["runs/first", "runs/second"], tmp_path)
    before = below(tmp_path)
    (tmp_path / "figures" / "forest_ensemble.svg").write_text("of a report over data sets")
    report_folders(["runs/first", "runs/second"], tmp_path)
    assert below(tmp_path) == before
    assert {path.read_text() for path in mine} == {"mine"}


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
    with pytest.raises(UsageError, match="is the output folder of a run"):
        report_folders(["a", "b"], tmp_path)
    with pytest.raises(UsageError, match="named twice"):
        report_folders(["a", "a"], tmp_path / "out")
    with pytest.raises(UsageError, match=r"there is no .*neither; name a pack"):
        report_folders([tmp_path / "neither", tmp_path / "nor"], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"it has no experiment\.yaml"):
        report_folders([tmp_path / "empty", tmp_path / "nor"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
