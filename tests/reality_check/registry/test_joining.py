"""Runs that are joined: the report is that of one run, byte for byte, or nothing is written."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from support.recorded_runs import CODE, experiment

from reality_check.api import merge, pack, report
from reality_check.cli.main import main
from reality_check.config.schema import Experiment
from reality_check.registry.joining import check_joinable, joined, joined_code
from reality_check.registry.pack import Pack
from reality_check.studies.plan import Step
from reality_check.utils.errors import UsageError

ONE, TWO = "quick/normalized_softmax", "quick/contrastive"


def below(folder: Path) -> dict[str, bytes]:
    """All files, but for the database and the locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("studies.db", ".lock", "merged_from.json")
    }


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("packed", [False, True], ids=["folders", "packs"])
def test_the_joint_run_is_that_of_one_run(runs: Path, tmp_path: Path, packed: bool) -> None:
    sources = [runs / "one", runs / "two"]
    if packed:
        sources = [pack(source, tmp_path / f"{source.name}.pack") for source in sources]
    whole = tmp_path / "whole"
    merge(sources, whole)
    at_once = tmp_path / "at_once"
    shutil.copytree(runs / "both", at_once)
    report(at_once)
    expected, found = below(at_once), below(whole)
    assert [*found] == [*expected]
    for name, content in expected.items():
        assert found[name] == content, name
    assert {"report.md", "results.csv", "summary.json"} < {*found}
    origins = json.loads((whole / "merged_from.json").read_text())
    assert [origin["methods"] for origin in origins] == [["normalized_softmax"], ["contrastive"]]
    assert all(origin["checksum"] for origin in origins) is packed


def refusal(*sources: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        merge(sources, out)
    assert not out.exists(), "nothing is written"
    return str(caught.value)


def test_another_seed_is_refused_and_the_key_named(runs: Path, tmp_path: Path) -> None:
    words = refusal(runs / "two", runs / "another_seed", out=tmp_path / "out")
    assert f"seed is 0 in {runs / 'two'} and 1 in {runs / 'another_seed'}" in words
    assert "reality-check report A B --out DIR" in words


def test_the_same_method_twice_is_refused(runs: Path, tmp_path: Path) -> None:
    words = refusal(runs / "both", runs / "one", out=tmp_path / "out")
    assert "have the method 'normalized_softmax' twice" in words
    again = refusal(runs / "one", runs / "one", out=tmp_path / "out")
    assert "is named twice" in again


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("protocol.split.folds=3", "protocol.split.folds is 2 in A and 3 in B"),
        ("protocol.search.trials=4", "protocol.search.trials is 2 in A and 4 in B"),
        ("protocol.final_metrics=[NMI]", "protocol.final_metrics is [] in A and ['NMI'] in B"),
        ("model.arguments.width=8", "model.arguments.width is 4 in A and 8 in B"),
        ("dataset.classes=48", "dataset.classes is 40 in A and 48 in B"),
        (
            "protocol.search.kind=repeated",
            "protocol.search.kind is 'one' in A and 'repeated' in B; protocol.search.repeats is "
            "not set in A and 5 in B",
        ),
    ],
)
def test_what_is_not_measured_alike_is_named(change: str, words: str) -> None:
    one, other = experiment(f"methods=[{ONE}]"), experiment(f"methods=[{TWO}]", change)
    with pytest.raises(UsageError) as caught:
        check_joinable(("A", "B"), (one, other))
    assert words in str(caught.value)


def coded(**code: str) -> Experiment:
    return experiment(f"methods=[{ONE}]", code={**CODE, **code})


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ({"dataset": "e"}, {}, "the images are not the same"),
        ({"mine.Loss": "1"}, {"mine.Loss": "2"}, "the code of mine.Loss has changed"),
        (
            {"pretrained weights": "1, 2"},
            {"pretrained weights": "3, 2"},
            "weights are not the same",
        ),
        ({"mine.Loss": "1"}, {"mine.Other": "2"}, ""),
        ({"pretrained weights": "1, 2"}, {"pretrained weights": "1, 3"}, ""),
        ({"data set from": "plugin 1"}, {"data set from": "plugin 2"}, ""),
    ],
)
def test_fingerprints_decide(first: dict[str, str], second: dict[str, str], refused: str) -> None:
    other = experiment(f"methods=[{TWO}]", code={**CODE, **second})
    if not refused:
        check_joinable(("A", "B"), (coded(**first), other))
        return
    with pytest.raises(UsageError, match=refused):
        check_joinable(("A", "B"), (coded(**first), other))


def test_weights_of_all_networks_are_listed_once() -> None:
    codes = [{"pretrained weights": "1, 2", "a": "x"}, {"pretrained weights": "1, 3"}]
    assert joined_code(codes) == {"pretrained weights": "1, 2, 3", "a": "x"}


def grown(label: str, method: str, *steps: Step) -> Pack:
    of = experiment(f"methods=[{method}]", "protocol.search={kind: repeated, repeats: 2}")
    return Pack(
        label, of, {"baselines": {"attributes": {}, "trials": [], "values": None}}, steps, {}
    )


def test_folders_that_grew_in_other_ways_are_refused() -> None:
    """The numbers of their reproductions mean other trials."""
    step = Step(1.0, {"protocol.reproductions": [1, 2]}, 2, 1)
    later = Step(2.0, {"protocol.final_metrics": [[], ["NMI"]]}, 2, 2)
    with pytest.raises(UsageError, match="A grew in other steps than the others"):
        joined([grown("A", ONE), grown("B", TWO, step)])
    assert joined([grown("A", ONE, later), grown("B", TWO)]).steps == (later,)
    both = joined(
        [grown("A", ONE, step, later), grown("B", TWO, dataclasses.replace(step, time=3))]
    )
    assert both.steps == (step, later)


def test_a_file_of_which_one_run_has_one_must_be_the_same(runs: Path, tmp_path: Path) -> None:
    for name, text in {"one": "x = 1", "two": "x = 2"}.items():
        shutil.copytree(runs / name, tmp_path / name)
        (tmp_path / name / "sources").mkdir()
        (tmp_path / name / "sources" / "mine.py").write_text(text)
    words = refusal(tmp_path / "one", tmp_path / "two", out=tmp_path / "out")
    assert f"sources/mine.py in {tmp_path / 'two'} is not that of the others" in words


def test_the_joint_folder_must_be_new(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        merge([runs / "one", runs / "two"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError, match="holds this joint run already"):
        merge([runs / "one", runs / "two"], runs / "both")


@pytest.mark.usefixtures("blank_figures")
def test_one_pack_alone_becomes_its_folder_again(runs: Path, tmp_path: Path) -> None:
    file, again, before = (tmp_path / name for name in ("one.pack", "again", "before"))
    pack(runs / "one", file)
    assert main(["merge", str(file), "--out", str(again)]) == 0
    shutil.copytree(runs / "one", before)
    report(before)
    assert below(again) == below(before)
