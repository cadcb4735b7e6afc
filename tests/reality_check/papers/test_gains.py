"""Which gains of a printed table are larger than luck."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib
import pytest
from scipy.stats import t as student

from reality_check.cli.main import main
from reality_check.papers.gains import Noise, Spread, judge_gains, pooled, searches_for
from reality_check.papers.printed_tables import PrintedTable, TableRow, load_table, published_sds


def row(method: str, mean: float, **counts: int) -> TableRow:
    return TableRow(method=method, metric="R@1", mean=mean, **counts)  # type: ignore[arg-type]


def table_of(*rows: TableRow) -> PrintedTable:
    return PrintedTable("made up", "", rows)


def noise(search: float = 1.0, selection: float = 0.0, classes: float = 0.0) -> Noise:
    return Noise(Spread(0.25, 20, "here"), Spread(search, 6, "there"), selection, classes)


def test_a_difference_is_measured_by_the_luck_of_both_sides() -> None:
    a = row("a", 62.0, n=5, networks=2)
    b = row("b", 60.0, n=1, searches=1, networks=2)
    [gain] = judge_gains(table_of(a, b), noise())
    # Trainings: 0.25 / 2 networks, of 5 and of 1; searches: as large as that of one network each.
    training, searches = 0.125 / 5 + 0.125, 0.25 + 0.25
    known = 1 / (1 / 12 + 1 / 20)
    degrees = (training + searches) ** 2 / (training**2 / 20 + searches**2 / known)
    expected = 2 * student.sf(2 / math.sqrt(training + searches), degrees)
    assert gain.p == pytest.approx(expected)
    assert gain.p_seeds == pytest.approx(2 * student.sf(2 / math.sqrt(training), 20))
    assert gain.seeds == pytest.approx(student.ppf(0.975, 20) * math.sqrt(training))
    assert gain.all == pytest.approx(student.ppf(0.975, degrees) * math.sqrt(training + searches))
    assert gain.outcome == "distinguishable"
    assert gain.searches is None


def test_selection_classes_and_other_comparisons_each_weaken_a_gain() -> None:
    a, b = (
        row("a", 62.0),
        row("b", 60.0),
    )
    [plain] = judge_gains(table_of(a, b), noise())
    [classes] = judge_gains(table_of(a, b), noise(classes=0.5))
    on_test = table_of(a, b).of(None, "test")
    [selected] = judge_gains(on_test, noise(selection=1.2))
    assert plain.p < min(classes.p, selected.p)
    assert selected.all == pytest.approx(plain.all + 1.2 * 0.5)
    [unselected] = judge_gains(table_of(a, b), noise(selection=1.2))
    assert unselected == plain
    many = judge_gains(table_of(a, b, row("c", 61.0)), noise(), proposed="a")
    assert [(g.first.method, g.second.method) for g in many] == [("a", "b"), ("a", "c")]
    assert many[0].p == pytest.approx(2 * plain.p)


def test_outcomes_follow_from_both_tests() -> None:
    rows = [row(name, mean, n=25) for name, mean in (("a", 61), ("b", 60), ("c", 59.9))]
    ab, ac, bc = judge_gains(table_of(*rows), noise())
    assert [ab.outcome, ac.outcome, bc.outcome] == ["the settings only"] * 2 + [
        "not distinguishable"
    ]
    assert ab.searches is not None
    assert ac.searches is not None
    assert 3 < ac.searches < ab.searches


def test_more_searches_are_needed_for_less() -> None:
    actual = [searches_for(gap, noise(), 1, 1) for gap in (3.0, 0.5, 0.25, 0.001)]
    assert actual[0] == 3
    assert actual[1] is not None
    assert actual[2] == pytest.approx(4 * actual[1], rel=0.15)
    assert actual[3] is None


def test_variances_that_differ_have_few_degrees() -> None:
    spread = pooled([1.0, 2.0, 3.0], "")
    assert (spread.variance, spread.degrees) == (2.0, 2 * 4 / 1.0)
    assert pooled([2.0, 2.0], "").degrees > 1e6


def test_the_retrainings_of_the_reality_check_spread_as_its_intervals_say() -> None:
    """Half-widths of 0.11 to 0.28 over ten reproductions, in the aggregate's MAP@R."""
    rows = load_table("published/mlrc_cub200").of("MAP@R", None).rows
    sds = [row.sd for row in rows if row.sd is not None]
    assert len(sds) == len(rows) == 14
    reach = student.ppf(0.975, 9) / math.sqrt(10)
    assert (min(sds) * reach, max(sds) * reach) == pytest.approx((0.11, 0.28))
    assert {row.n for row in rows} == {10}
    assert len(published_sds("P@1")["cub200"]) == 14
    deviations = load_table("papers/004_warped_softmax/table2_cub200").rows
    assert {row.n for row in deviations} == {5}


CSV = "method,metric,mean,n,sd,selected_on\nours,R@1,62.1,5,0.4,\nold,R@1,60.0,5,0.5,test\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(CSV)
    return path


def test_the_command_says_it_in_sentences_as_json_and_as_a_figure(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claim", str(table)]) == 0
    said = capsys.readouterr().out
    assert "R@1 in points: 1 comparison" in said
    assert "has an sd of 0.45 (printed in the table)" in said
    assert "were chosen on the test classes" in said
    assert "ours − old: +2.10" in said
    figure = table.with_suffix(".svg")
    with matplotlib.rc_context({"text.usetex": True}):  # of a user's matplotlibrc
        drawn = ["--figure", str(figure)]
        assert main(["claim", str(table), "--json", "--classes", "100", *drawn]) == 0
    actual = json.loads(capsys.readouterr().out)
    assert actual["gains"][0]["outcome"] in said
    assert actual["noise"]["classes_sd"] == pytest.approx(0.24, abs=0.01)
    assert b"ours" in figure.read_bytes()


@pytest.mark.parametrize("suffix", ["", ".CSV", ".txt"])
def test_a_file_is_read_whatever_its_suffix(table: Path, suffix: str) -> None:
    assert load_table(str(table.rename(table.with_suffix(suffix)))).rows


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("method,", "loss,", "the columns are loss, metric, mean, n, sd, selected_on, but a table"),
        ("method,metric,mean", "method,metric", "a table needs method, metric, mean and may have"),
        ("mean,n", "mean,mean", "each once"),
        (CSV, CSV.replace(",", ";"), "separated by commas"),
        (CSV, "", "the columns are none"),
        (CSV, CSV.partition("\n")[0], "has a header, but no rows"),
        (
            "62.1",
            "best",
            "line 2: mean must be a valid number",
        ),
        ("62.1", "621", "line 2: mean must be less than or equal to 100, got '621'"),
        ("0.5,test", "0,5,test", "line 3 has more cells than the header; numbers have points"),
        (CSV, CSV.replace("62.1", "0.621").replace("60.0", "0.6"), "write 71.2 for 0.712"),
        (",5,0.4", ",1,0.4", "sd=0.4 with n=1, but an sd is of at least 2 values"),
        ("test", "train", "selected_on must be one of 'validation' or 'test', got 'train'"),
        ("old", "ours", "two rows of ours and R@1"),
        ("old,R@1", "old,R@2", "has 1 method with R@1"),
        (",5,0.4", ",²,", "n must be a valid integer"),
        ("ours", "", "the key 'method' is missing"),
        (CSV, "method,metric,mean,searches\nours,R@1,62.1,5\n", "n=1 retrainings of searches=5"),
    ],
)
def test_wrong_tables_are_refused(
    table: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    table.write_text(CSV.replace(old, new, 1))
    assert main(["claim", str(table)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["published/mlrc_cub"], "Did you mean 'published/mlrc_cub200'"),
        (["published/mlrc_cub200", "--metric", "NMI"], "has no metric 'NMI'; it has MAP@R"),
        (["published/mlrc_cub200", "--proposed", "arcfac"], "has no method 'arcfac'"),
        (["papers/003_heated_up_softmax/table2_cub200", "--metric", "NMI"], "with --seed-sd"),
    ],
)
def test_wrong_questions_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["claim", *arguments]) == 2
    assert message in capsys.readouterr().err
