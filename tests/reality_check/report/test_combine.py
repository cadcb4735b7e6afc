"""Several output folders: what may stand in one table, and under which names and numbers."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reality_check.report.combine import Source, combine, differences, folder_labels, groups
from reality_check.results import (
    Cost,
    Deviation,
    ExperimentResults,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)
from reality_check.utils.errors import UsageError

MAP = "mean_average_precision_at_r"
CONFIG: dict[str, Any] = {
    "name": "one",
    "seed": 0,
    "dataset": {"name": "cub", "path": "/a", "size": 64, "arguments": {"path": "/a"}},
    "model": {"trunk": "conv4"},
    "protocol": {"name": "quick", "search": {"trials": 8}, "note": "x", "final_metrics": ["AMI"]},
    "code": {"dataset": "d1", "data set from": "s1", "mine.Loss": "l1"},
    "slurm": {"gpus": 1},
}


def results(
    *methods: str, changes: dict[str, Any] | None = None, **fields: Any
) -> ExperimentResults:
    """Two reproductions of each method; ``changes`` are of dotted settings."""
    config = copy.deepcopy(CONFIG)
    config["methods"] = [{"name": name, "loss": "mine.Loss"} for name in methods]
    for key, value in (changes or {}).items():
        *path, last = key.split("/")
        block = config
        for part in path:
            block = block[part]
        block[last] = value
    shown = ExperimentResults(
        name=config["name"],
        protocol="quick",
        reference="mlrc",
        finished=True,
        methods=tuple(method(name) for name in methods),
        rows=tuple(
            ResultRow(config["name"], name, "ensemble", run, MAP, 0.2 + run / 100)
            for name in methods
            for run in range(2)
        ),
        costs=tuple(Cost(name, "search", "cpu", 1, 0.5) for name in methods),
        config=config,
    )
    return dataclasses.replace(shown, **fields)


def method(name: str) -> MethodResults:
    runs = tuple(TrialRecord(run, "complete") for run in range(2))
    return MethodResults(name, "mine.Loss", reproductions=runs)


def sources(*found: ExperimentResults) -> list[Source]:
    return [Source(f"f{i}", Path(f"runs/f{i}"), each) for i, each in enumerate(found)]


# -- what may stand in one table -----------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "two", "seed": 3},
        {"dataset/path": "/b", "dataset/download": True},
        {"protocol/name": "other", "protocol/note": "y", "protocol/final_metrics": []},
        {"dataset/arguments/path": "/b", "code/data set from": "s2"},
        {"dataset/arguments": {}, "code": {"dataset": "d1", "mine.Loss": "l1"}},
        {"code/mine.Loss": "l2"},
        {"code": {}},
        {"slurm": {"gpus": 4}, "published_results": {"item": "Table 1"}},
    ],
)
def test_settings_that_keep_results_comparable(changes: dict[str, Any]) -> None:
    assert differences(results("a"), results("b", "c", changes=changes)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dataset/size": 32}, ["dataset.size"]),
        ({"dataset/name": "sop"}, ["dataset.name"]),
        ({"code/dataset": "d2"}, ["code.dataset"]),
        ({"model/trunk": "resnet50"}, ["model.trunk"]),
        ({"protocol/search": {"trials": 50}}, ["protocol.search.trials"]),
        ({"protocol/split": {"rule": "mine"}, "seed": 1}, ["protocol.split"]),
    ],
)
def test_settings_that_do_not(changes: dict[str, Any], expected: list[str]) -> None:
    assert differences(results("a"), results("a", changes=changes)) == expected


def test_groups_keep_the_order_given() -> None:
    other = {"model/trunk": "resnet50"}
    given = sources(results("a"), results("b", changes=other), results("c"))
    assert [[s.label for s in group] for group in groups(given)] == [["f0", "f2"], ["f1"]]


# -- names ---------------------------------------------------------------------------------------


def test_labels_are_the_shortest_endings_that_differ(tmp_path: Path) -> None:
    paths = [tmp_path / "x/run", tmp_path / "y/run", tmp_path / "z"]
    assert folder_labels(paths) == ["x/run", "y/run", "z"]
    with pytest.raises(UsageError, match="named twice; name it once"):
        folder_labels([tmp_path / "z", tmp_path / "x/../z"])


def test_one_folder_stays_as_it_is() -> None:
    (source,) = sources(results("a"))
    (folder,) = combine([source]).folders
    assert (folder.label, folder.methods) == (source.label, ("a",))
    assert dataclasses.replace(combine([source]), folders=()) == source.results


def test_methods_of_the_same_name_are_kept_apart() -> None:
    whole = combine(sources(results("a", "b"), results("a", "c", changes={"name": "two"})))
    names = ["a (f0)", "b", "a (f1)", "c"]
    assert whole.name == "one + two"
    assert [method.name for method in whole.methods] == names
    assert [method.origin for method in whole.methods] == ["f0", "f0", "f1", "f1"]
    assert [entry["name"] for entry in whole.config["methods"]] == names
    assert [cost.method for cost in whole.costs] == names
    assert list(dict.fromkeys(row.method for row in whole.rows)) == names
    assert {row.experiment for row in whole.rows} == {"one", "two"}
    assert [trial["method"] for trial in whole.trials()[::2]] == names
    assert [(f.label, f.methods) for f in whole.folders] == [("f0", ("a", "b")), ("f1", ("a", "c"))]
    assert len(set(whole.rows)) == 8, "nothing is lost or counted twice"


def test_further_metrics_are_those_of_all() -> None:
    metrics = {"protocol/final_metrics": ["NMI", "AMI"]}
    whole = combine(sources(results("a"), results("b", changes=metrics)))
    assert whole.config["protocol"]["final_metrics"] == ["AMI", "NMI"]


# -- seeds ---------------------------------------------------------------------------------------


def numbers(whole: ExperimentResults) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in whole.rows:
        found.setdefault(row.method, []).append(row.reproduction)
    return found


def test_common_seeds_have_common_numbers_and_others_have_not() -> None:
    same = combine(sources(results("a"), results("b")))
    assert numbers(same) == {"a": [0, 1], "b": [0, 1]}
    other = combine(sources(results("a"), results("b", changes={"seed": 7}), results("c")))
    assert numbers(other) == {"a": [0, 1], "b": [2, 3], "c": [0, 1]}
    assert [run.trial_index for run in other.methods[1].reproductions] == [2, 3]
    assert "seeds" in [deviation.topic for deviation in other.deviations]
    text = "the seeds differ, so runs are numbered separately: f0 from 0, f1 from 2, f2 from 0"
    assert ("Numbers of runs", text) in other.facts


def test_scores_of_queries_are_found_under_the_new_names() -> None:
    def queries(level: float, classes: int = 2) -> QueryScores:
        def load(method: str, category: str, run: int) -> np.ndarray | None:
            return np.full((3, 4), level + run) if method == "a" and run in (0, 1) else None

        labels = np.repeat(np.arange(classes), 4 // classes)
        return QueryScores(labels, tuple(map(str, range(classes))), load)

    whole = combine(
        sources(
            results("a", queries=queries(10)),
            results("a", changes={"seed": 1}, queries=queries(20)),
            results("a", queries=queries(30, classes=4)),
            results("a"),
        )
    )
    assert whole.queries is not None

    def found(method: str, run: int) -> float | None:
        assert whole.queries is not None
        scores = whole.queries.load(method, "ensemble", run)
        return None if scores is None else float(scores[0, 0])

    assert [found("a (f0)", 1), found("a (f1)", 3), found("a (f1)", 1)] == [11.0, 21.0, None]
    assert found("a (f2)", 0) is None, "its queries are others"
    assert found("a (f3)", 0) is None, "it has none"


# -- what was said of each -----------------------------------------------------------------------


def test_deviations_and_facts_say_which_folder_they_are_of() -> None:
    everywhere, here = Deviation("images", "Small."), Deviation("budget", "Unequal.", serious=True)
    facts = (("Data set", "CUB"), ("Machine", "x86"))
    whole = combine(
        sources(
            results("a", deviations=(everywhere,), facts=facts),
            results("b", deviations=(everywhere, here), facts=(facts[0], ("Machine", "arm"))),
        )
    )
    texts = {deviation.topic: deviation for deviation in whole.deviations}
    assert texts["images"].text == "Small."
    assert texts["budget"] == Deviation("budget", "Unequal. (f1)", serious=True)
    assert "run separately" in texts["several folders"].text
    assert "machine" in texts
    assert whole.facts == (facts[0], ("Machine (f0)", "x86"), ("Machine (f1)", "arm"))


def test_what_is_said_of_methods_of_several_folders_is_said_once() -> None:
    said = [
        Deviation("parallel", "Trials of {methods}.", methods=names) for names in (("a", "b"), "c")
    ]
    whole = combine(sources(*(results(*d.methods, deviations=(d,)) for d in said), results("d")))
    assert "Trials of a, b, c. (f0, f1)" in [d.text for d in whole.deviations]
    assert len([d for d in whole.deviations if d.topic == "parallel"]) == 1


def test_baselines_of_other_seeds_are_further_ones_and_the_same_count_once() -> None:
    def rows(untrained: float) -> tuple[ResultRow, ...]:
        values = {"raw pixels": [0.1], "untrained embedder": [0.03, untrained]}
        return tuple(
            ResultRow("e", name, "aggregate", number, MAP, value)
            for name, found in values.items()
            for number, value in enumerate(found)
        )

    both = combine(sources(results("a", baselines=rows(0.04)), results("b", baselines=rows(0.05))))
    assert [(row.method, row.reproduction, row.value) for row in both.baselines] == [
        ("raw pixels", 0, 0.1),
        ("untrained embedder", 0, 0.03),
        ("untrained embedder", 1, 0.04),
        ("untrained embedder", 2, 0.05),
    ]


def test_an_unfinished_folder_makes_the_whole_unfinished() -> None:
    whole = combine(sources(results("a"), results("b", finished=False)))
    assert not whole.finished
    assert [folder.finished for folder in whole.folders] == [True, False]
