"""A suite from its YAML to its report: run, stopped half-way, grown, packed, and with a failure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.in_process import run_command

from reality_check import SuiteResults, UsageError, load_results

pytestmark = pytest.mark.usefixtures("blank_figures")

YAML = """
suite:
  - {name: few, dataset: {reader: glyphs, name: few, classes: 24, images_per_class: 4}}
  - {name: other, dataset: {reader: glyphs, name: other, classes: 28, images_per_class: 4, seed: 1}}
model: {base: conv4, arguments: {width: 4}}
protocol:
  base: quick
  training: {batch_size: 8, iterations_per_epoch: 1, max_epochs: 1, evaluate_every: 1}
  search: {trials: 5, budget: 2, race: [0.8]}
methods: [quick/contrastive, {base: quick/proxy_nca, samples_per_class: 2}]
device: cpu
"""
THIRD = """  - name: third
    dataset: {reader: glyphs, name: third, classes: 26, images_per_class: 4}
"""
#: A loss that fails on one data set only.
LOSS = """
from pytorch_metric_learning.losses import ContrastiveLoss


class Odd(ContrastiveLoss):
    def forward(self, embeddings, labels, *more):
        if labels.max() == 6:  # the last of the 7 classes that a fold of the second data set has
            raise ValueError("odd")
        return super().forward(embeddings, labels, *more)
"""


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished suite, and what the command printed."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "both.yaml").write_text(YAML)
    done = run_command(folder, "run", "both.yaml")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_every_data_set_has_a_folder_and_all_have_a_report(ran: tuple[Path, str]) -> None:
    folder, said = ran
    out = folder / "runs" / "both"
    assert "both (contrastive, proxy_nca) on few, other, protocol quick" in said
    assert "data sets (p" in said
    for name in ("few", "other"):
        assert (out / name / "report.html").exists()
        assert len(rows(out / name / "trials.csv")) > 8
    table = rows(out / "results.csv")
    assert {row["experiment"] for row in table} == {"few", "other"}
    assert json.loads((out / "summary.json").read_text())["independent"]
    results = load_results(out)
    assert isinstance(results, SuiteResults)
    assert results.finished
    assert len(results.records()) == len(table)


def test_again_it_only_writes_the_report(ran: tuple[Path, str]) -> None:
    folder, _ = ran
    before = (folder / "runs" / "both" / "results.csv").read_bytes()
    done = run_command(folder, "run", "both.yaml", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (folder / "runs" / "both" / "results.csv").read_bytes() == before
    assert run_command(folder, "report", "runs/both").returncode == 0
    status = run_command(folder, "status", "both.yaml", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in status] == ["complete", "complete"]


def test_packs_of_a_suite_give_the_same_verdict(ran: tuple[Path, str]) -> None:
    folder, _ = ran
    assert run_command(folder, "pack", "runs/both", "--out", "packs").returncode == 0
    packs = ["packs/both_few.pack", "packs/both_other.pack"]
    done = run_command(folder, "report", *packs, "--across", "--out", "across")
    assert done.returncode == 0, done.stderr
    old, new = (rows(folder / where / "comparisons.csv") for where in ("runs/both", "across"))
    assert [row["p_above_1"] for row in old] == [row["p_above_1"] for row in new]
    assert run_command(folder, "leaderboard", *packs, "--out", "board.html").returncode == 0
    page = (folder / "board.html").read_text("utf-8")
    assert "Across both_few and both_other" in page or "Across few and other" in page


def test_more_data_sets_train_only_these_and_none_is_left_out(ran: tuple[Path, str]) -> None:
    folder, _ = ran
    kept = (folder / "runs" / "both" / "few" / "studies.db").read_bytes()
    (folder / "three.yaml").write_text(YAML.replace("model:", f"{THIRD}model:", 1))
    done = run_command(folder, "run", "three.yaml", "--out", "runs/both")
    assert done.returncode == 0, done.stderr
    assert "of 3 data sets" in done.stdout
    assert (folder / "runs" / "both" / "few" / "studies.db").read_bytes() == kept
    done = run_command(folder, "run", "both.yaml")
    assert done.returncode == 2
    assert "holds a suite with third too" in done.stderr
    (folder / "one.yaml").write_text(YAML.replace("suite:", "dataset: glyphs\nvariants: {}\nx:"))
    assert run_command(folder, "check", "one.yaml").returncode == 2


def test_a_failure_ends_neither_the_others_nor_the_report(tmp_path: Path) -> None:
    (tmp_path / "odd_losses.py").write_text(LOSS)
    text = YAML.replace("quick/contrastive", "{name: odd, loss: odd_losses.Odd}")
    (tmp_path / "odd.yaml").write_text(text)
    done = run_command(tmp_path, "run", "odd.yaml")
    assert done.returncode == 1
    assert "other: odd, search: ValueError: odd" in done.stderr or "few: odd" in done.stderr
    data = json.loads((tmp_path / "runs" / "odd" / "summary.json").read_text())
    assert not data["finished"]
    assert len(data["verdicts"][0]["sentence"]) > 0
    assert "p_above_2" in data["verdicts"][0], "the planned data sets count"


def test_what_is_wrong_on_each_data_set_is_said_at_once(tmp_path: Path) -> None:
    text = YAML.replace("name: few, dataset: {reader: glyphs,", "name: few, dataset: {reader: csv,")
    (tmp_path / "bad.yaml").write_text(text)
    done = run_command(tmp_path, "check", "bad.yaml")
    assert done.returncode == 2
    assert "few: " in done.stderr
    (tmp_path / "missing.yaml").write_text(
        YAML.replace(
            "{reader: glyphs, name: few,", "{reader: tensors, name: few, path: none.npz} #"
        )
    )
    assert run_command(tmp_path, "check", "missing.yaml").returncode == 2
    with pytest.raises(UsageError, match="is not an output folder"):
        load_results(tmp_path)
