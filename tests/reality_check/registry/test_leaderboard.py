"""The leaderboard: a table for each data set and protocol."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.recorded_runs import experiment, record

from reality_check.api import leaderboard, load_results, pack
from reality_check.cli.main import main
from reality_check.registry.pack import protocol_hash
from reality_check.utils.errors import UsageError


@pytest.mark.usefixtures("blank_figures")
def test_what_is_comparable_stands_in_one_table(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [runs / "two", pack(runs / "one", tmp_path / "one.pack"), runs / "another_seed"]
    record(experiment("model.arguments.width=8", "protocol.note=other"), tmp_path / "wide")
    file = tmp_path / "board.html"
    arguments = [str(path) for path in (*given, tmp_path / "wide")]
    assert main(["leaderboard", *arguments, "--out", str(file)]) == 0
    assert "board.html: 2 tables of 4 runs" in capsys.readouterr().out
    page = file.read_text().replace("<wbr>", "")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    first, second = page.partition('id="board-1"')[2].split('id="board-2"')
    of_both, of_wide = (
        protocol_hash(experiment()),
        protocol_hash(experiment("model.arguments.width=8")),
    )
    assert of_both in first
    assert of_wide in second
    assert of_wide not in first
    rows = re.findall(r'<th scope="row">(?:<i>|<em>)?([\w ]+)', first)
    assert {"contrastive", "normalized_softmax", "raw pixels", "untrained"} <= {*rows}
    assert "hours of CPU processes" in first
    assert "over n searches" in first, "a method of two seeds has two searches"
    assert "contrastive" not in second
    assert len(list(tmp_path.glob("board*"))) == 1


def test_the_number_is_that_of_the_report(runs: Path, tmp_path: Path) -> None:
    leaderboard([runs / "one"], tmp_path / "board.html")
    text = re.sub(r"<[^>]*>", " ", (tmp_path / "board.html").read_text())
    values = [
        row.value
        for row in load_results(runs / "one").rows
        if (row.category, row.metric) == ("ensemble", "mean_average_precision_at_r")
    ]
    assert f"{100 * sum(values) / len(values):.2f}" in text


@pytest.mark.usefixtures("blank_figures")
def test_methods_of_one_name_stand_beside_each_other(runs: Path, tmp_path: Path) -> None:
    other = "methods=[{name: contrastive, loss: ContrastiveLoss, arguments: {pos_margin: 0.3}}]"
    record(experiment(other, "seed=5"), tmp_path / "mine")
    assert leaderboard([runs / "two", tmp_path / "mine"], tmp_path / "board.html") == 1
    page = (tmp_path / "board.html").read_text().replace("<wbr>", "")
    assert "contrastive (two)" in page
    assert "contrastive (mine)" in page


def test_the_same_results_do_not_count_twice(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hold the same results of 'normalized_softmax', which"):
        leaderboard([runs / "both", runs / "one"], tmp_path / "board.html")
    assert not (tmp_path / "board.html").exists()


def test_what_is_not_finished_stands_on_none(tmp_path: Path) -> None:
    record(experiment(), tmp_path / "begun", until=2)
    with pytest.raises(UsageError, match="begun is not finished, so it stands on no leaderboard"):
        leaderboard([tmp_path / "begun"], tmp_path / "board.html")
