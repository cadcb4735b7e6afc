"""Which gains of a printed table are larger than luck."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from scipy.stats import studentized_range
from scipy.stats import t as student

from reality_check.cli.main import main
from reality_check.papers.gains import (
    Gain,
    Noise,
    Spread,
    correction_of,
    judge_gains,
    noise_of,
    pooled,
    searches_for,
)
from reality_check.papers.printed_tables import PrintedTable, TableRow, load_table, published_sds


def row(method: str, mean: float, **counts: int) -> TableRow:
    return TableRow(method=method, metric="R@1", mean=mean, **counts)  # type: ignore[arg-type]


def table_of(*rows: TableRow) -> PrintedTable:
    return PrintedTable("made up", "", rows)


def noise(search: float = 0.25, selection: float = 0.0, classes: float = 0.0) -> Noise:
    return Noise(Spread(0.25, 20, "here"), Spread(search, 6, "there"), selection, classes)


def judged(table: PrintedTable, luck: Noise, proposed: str | None = None) -> list[Gain]:
    return judge_gains(table, luck, correction_of(table, proposed), proposed)


def test_a_difference_is_measured_by_the_luck_of_both_sides() -> None:
    a = row("a", 62.0, n=5, networks=2)
    b = row("b", 60.0, n=1, searches=1, networks=2)
    [gain] = judged(table_of(a, b), noise())
    # Trainings: 0.25 / 2 networks, of 5 and of 1; searches: as large as that of one network each.
    training, searches = 0.125 / 5 + 0.125, 0.25 + 0.25
    known = 1 / (1 / 6 + 1 / 20)
    degrees = (training + searches) ** 2 / (training**2 / 20 + searches**2 / known)
    expected = 2 * student.sf(2 / math.sqrt(training + searches), degrees)
    assert gain.corrected_p == pytest.approx(expected)
    assert gain.half_width_seeds == pytest.approx(student.ppf(0.975, 20) * math.sqrt(training))
    reach = student.ppf(0.975, degrees)
    assert gain.half_width == pytest.approx(reach * math.sqrt(training + searches))
    assert gain.outcome == "distinguishable"
    assert gain.searches_needed is None


def test_selection_and_classes_each_weaken_a_gain() -> None:
    a, b = row("a", 62.0), row("b", 60.0)
    [plain] = judged(table_of(a, b), noise())
    [classes] = judged(table_of(a, b), noise(classes=0.5))
    on_test = table_of(a, b).of(None, "test")
    [selected] = judged(on_test, noise(selection=0.6))
    assert plain.corrected_p < min(classes.corrected_p, selected.corrected_p)
    assert selected.half_width == pytest.approx(plain.half_width + 0.6)
    [unselected] = judged(table_of(a, b), noise(selection=0.6))
    assert unselected == plain


def test_the_highest_mean_is_corrected_for_every_pair() -> None:
    """Another method is compared with four others; the highest might have been any of five."""
    rows = [row(name, mean) for name, mean in zip("abcde", (64, 62, 61, 60.5, 60), strict=True)]
    table = table_of(*rows)
    every = judged(table, noise())
    highest = judged(table, noise(), "a")
    assert highest == [
        dataclasses.replace(gain, searches_needed=other.searches_needed)
        for gain, other in zip(every, highest, strict=False)
    ]
    assert [gain.second.method for gain in highest] == ["b", "c", "d", "e"]
    degrees = 1 / (0.5**2 / 20 + 0.5**2 * (1 / 6 + 1 / 20))
    range_of = studentized_range.sf(math.sqrt(2) * 2 / 1.0, 5, degrees)
    assert highest[0].corrected_p == pytest.approx(range_of, abs=1e-4)
    beaten = judged(table, noise(), "b")
    assert beaten[0].difference == -2
    assert beaten[0].corrected_p < highest[0].corrected_p
    tied = table_of(*rows, row("f", 64))
    assert [correction_of(tied, name) for name in (None, "a", "f", "b")] == [
        *["Tukey"] * 3,
        "Dunnett",
    ]


@pytest.mark.parametrize("proposed", [None, "a", "b"])
def test_an_interval_excludes_zero_exactly_if_its_p_value_is_below_5_percent(
    proposed: str | None,
) -> None:
    means = [60 + 0.4 * number for number in range(12, -1, -1)]
    rows = [row(name, mean) for name, mean in zip("abcdefghijklm", means, strict=True)]
    gains = judged(table_of(*rows).of(None, "test"), noise(selection=0.3), proposed)
    found = [gain.corrected_p < 0.05 for gain in gains]
    assert [abs(gain.difference) > gain.half_width for gain in gains] == found
    assert any(found) > all(found)


def printed(method: str, mean: float, n: int, sd: float | None) -> TableRow:
    return TableRow(method=method, metric="R@1", mean=mean, n=n, sd=sd)


@pytest.mark.parametrize(
    ("n", "sd", "expected"),
    [
        (5, 0.1, "the settings only"),
        (2, 0.1, "not distinguishable"),
        (5, None, "not distinguishable"),
        (5, 1.2, "not distinguishable"),  # though the table's pooled sd is small
    ],
)
def test_settings_are_compared_by_their_own_sds(n: int, sd: float | None, expected: str) -> None:
    steady = [printed(name, 61, 40, 0.1) for name in "bcde"]
    gains = judged(table_of(printed("a", 62, n, sd), *steady), noise(0.5), "a")
    assert {gain.outcome for gain in gains} == {expected}
    between = judged(table_of(printed("a", 62, n, sd), printed("b", 61, 5, 0.1)), noise(0.5))
    assert between[0].outcome == expected
    assert between[0].searches_needed is not None


def test_a_large_test_set_does_not_make_searches_less_lucky() -> None:
    rows = [[printed(name, 60, 5, sd) for name in "ab"] for sd in (0.01, 0.02, 2.0, 4.0)]
    tiny, small, large, larger = (noise_of(table_of(*pair)) for pair in rows)
    assert tiny.search == small.search
    assert tiny.selection == small.selection
    banks = [1.21 * 0.79, 0.89 * 0.72, 1.68 * 0.49, 1.53 * 0.43, 0.67 * 0.57, 1.76 * 0.37]
    assert tiny.search.variance == pytest.approx(np.mean(np.square(banks)))
    assert larger.search.variance == pytest.approx(4 * large.search.variance)
    assert larger.selection == pytest.approx(2 * large.selection)


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
    assert "if it has folds, fill in the column networks" in said
    assert "has the highest mean" not in said
    assert main(["claim", str(table), "--proposed", "ours"]) == 0
    assert "ours has the highest mean of the table" in capsys.readouterr().out
    table.write_text(CSV.replace("selected_on", "networks").replace("test", "4"))
    assert main(["claim", str(table), "--proposed", "old"]) == 0
    said_of_old = capsys.readouterr().out
    assert "column networks" not in said_of_old
    assert "has the highest mean" not in said_of_old
    table.write_text(CSV)
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
