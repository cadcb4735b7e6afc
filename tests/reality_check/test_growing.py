"""An experiment that grows in its folder: what is there stays, and the end is as if from the start.

One worker and the random sampler: the files of results are the same byte for byte.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from support.in_process import run_command

import reality_check as rc
from reality_check.launch.trial_runner import TrialRunner
from reality_check.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("blank_figures")

SMALL = [
    "protocol.search.trials=2",
    "protocol.reproductions=1",
    "protocol.final_metrics=[]",
    "methods=[quick/normalized_softmax]",
]
LARGE = [
    "protocol.search.trials=3",
    "protocol.reproductions=2",
    "protocol.final_metrics=[NMI,AMI]",
    "methods=[quick/contrastive,quick/normalized_softmax]",
]
#: One step a training: what grows is which trainings there are.
SHORT = ("protocol.training.max_epochs=1", "protocol.training.iterations_per_epoch=1")
CSV = ("results.csv", "baselines.csv", "comparisons.csv")


def run(tiny: Path, folder: Path, *given: str, out: str = "out") -> str:
    done = run_command(folder, "run", str(tiny), *SHORT, *given, "--out", out)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(tiny: Path, folder: Path, *given: str) -> str:
    before = (folder / "out" / "experiment.yaml").read_bytes()
    done = run_command(folder, "run", str(tiny), *SHORT, *given, "--out", "out")
    assert done.returncode == 2
    assert (folder / "out" / "experiment.yaml").read_bytes() == before
    return done.stderr


@pytest.fixture(scope="module")
def at_once(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it from the start."""
    folder = tmp_path_factory.mktemp("at_once")
    run(tiny, folder, *LARGE)
    return folder / "out"


@pytest.fixture(scope="module")
def small(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of which `out` is the small experiment; whoever lets it grow copies it."""
    folder = tmp_path_factory.mktemp("small")
    run(tiny, folder, *SMALL)
    return folder


@pytest.fixture(scope="module")
def step_by_step(
    tiny: Path, small: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """The small experiment after it has grown into the large one, and what each step said.

    More trials, more reproductions, metrics, and a method, each in its turn.
    """
    folder = tmp_path_factory.mktemp("step_by_step") / "copy"
    shutil.copytree(small, folder)
    _, reproductions, metrics, methods = SMALL
    steps = [
        [LARGE[0], reproductions, metrics, methods],
        [*LARGE[:2], metrics, methods],
        [*LARGE[:3], methods],
        LARGE,
    ]
    said = []
    for number, given in enumerate(steps):
        with pytest.MonkeyPatch.context() as patch:
            if number == 2:
                patch.setattr(Trainer, "build", lambda self: pytest.fail("a network is trained"))
            said.append(run(tiny, folder, *given))
    return folder / "out", said


def without_times(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def same(grown: Path, whole: Path) -> None:
    for name in CSV:
        assert (grown / name).read_bytes() == (whole / name).read_bytes(), name
    one, other = (rc.load_results(folder) for folder in (grown, whole))
    assert one.finished
    trials = [
        [{**row, "attempts": 1} for row in without_times(results.trials())]
        for results in (one, other)
    ]
    assert trials[0] == trials[1]
    for queries in whole.rglob("queries.npz"):
        assert (grown / queries.relative_to(whole)).read_bytes() == queries.read_bytes()


@pytest.mark.slow
def test_step_by_step_to_the_same_end(step_by_step: tuple[Path, list[str]], at_once: Path) -> None:
    """2 trials to 3, 1 reproduction to 2, two metrics more, which train nothing, a method more."""
    out, said = step_by_step
    steps = [
        "protocol.search.trials from 2 to 3",
        "protocol.reproductions from 1 to 2",
        "protocol.final_metrics + NMI, AMI",
        "methods + contrastive",
    ]
    for step, text in zip(steps, said, strict=True):
        assert f"The experiment is extended: {step}. Existing results are kept." in text
    same(out, at_once)


@pytest.mark.slow
def test_all_together_to_the_same_end(
    tiny: Path, small: Path, tmp_path: Path, at_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    first = rc.load_results(tmp_path / "out")
    trained: list[str] = []
    build = Trainer.build

    def noting(self: Trainer) -> None:
        trained.append(str(self.folder.relative_to(tmp_path / "out")))
        build(self)

    monkeypatch.setattr(Trainer, "build", noting)
    run(tiny, tmp_path, *LARGE)
    same(tmp_path / "out", at_once)
    old = [name for name in trained if name.startswith("normalized_softmax/search")]
    folds = ("fold_0", "fold_1")
    new = [f"normalized_softmax/search/002/{fold}" for fold in folds]
    assert old == new, "the trials that were there are not trained again"
    before = first.methods[0].retrained
    after = rc.load_results(tmp_path / "out").methods
    (same_method,) = [method for method in after if method.name == "normalized_softmax"]
    again = [name for name in trained if name.startswith("normalized_softmax/reproductions/000")]
    assert bool(again) == (before != same_method.retrained), "only another winner is retrained"


@pytest.mark.slow
def test_reproductions_of_several_searches_keep_their_numbers(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More searches, and then more reproductions of each: nothing is trained twice."""
    some = ["protocol.categories=[aggregate]", "protocol.search.kind=repeated"]
    run(tiny, tmp_path, *some, "protocol.search.repeats=2", "protocol.reproductions=1")
    before = rc.load_results(tmp_path / "out").records()
    done: list[tuple[str, int, int]] = []
    do = TrialRunner.do

    def noting(self: TrialRunner, work: object, context: object) -> object:
        done.append((work.stage.value, work.search, context.trial_index))
        return do(self, work, context)

    monkeypatch.setattr(TrialRunner, "do", noting)
    run(tiny, tmp_path, *some, "protocol.search.repeats=2", "protocol.reproductions=2")
    assert done == [
        ("reproductions", 0, 2),
        ("reproductions", 0, 3),
        ("baselines", 0, 2),
        ("baselines", 0, 3),
    ]
    done.clear()
    run(tiny, tmp_path, *some, "protocol.search.repeats=3", "protocol.reproductions=2")
    assert done[:2] == [("search", 2, 0), ("search", 2, 1)]
    assert done[2:4] == [("reproductions", 0, 4), ("reproductions", 0, 5)]
    after = rc.load_results(tmp_path / "out")
    assert [row for row in after.records() if row["reproduction"] < 2] == before
    searches = {row["reproduction"]: row["search"] for row in after.records()}
    assert searches == {0: 0, 1: 1, 2: 0, 3: 1, 4: 2, 5: 2}


@pytest.mark.slow
def test_a_model_of_the_search_is_told_apart(tiny: Path, tmp_path: Path) -> None:
    """With TPE too, where the trials that are there were drawn as they would be now."""
    tpe = ["protocol.search.sampler=tpe", "protocol.categories=[aggregate]"]
    run(tiny, tmp_path, *tpe, "protocol.search.trials=3", "protocol.search.startup_trials=2")
    run(tiny, tmp_path, *tpe, "protocol.search.trials=4", "protocol.search.startup_trials=2")
    whole = ["protocol.search.trials=4", "protocol.search.startup_trials=2"]
    run(tiny, tmp_path, *tpe, *whole, out="whole")
    same(tmp_path / "out", tmp_path / "whole")
    other = ["protocol.search.trials=5", "protocol.search.startup_trials=3"]
    said = refusal(tiny, tmp_path, *tpe, *other)
    assert "protocol.search.startup_trials is 2 there and 3 here" in said


@pytest.mark.slow
def test_what_is_refused(tiny: Path, at_once: Path) -> None:
    fewer = {
        "protocol.search.trials is 3 there and 1 here": ["protocol.search.trials=1"],
        "protocol.reproductions is 2 there and 1 here": ["protocol.reproductions=1"],
        "methods is ['contrastive', 'normalized_softmax'] there and ['contrastive'] here": [
            "methods=[quick/contrastive]"
        ],
        "methods.contrastive.samples_per_class is 4 there and 2 here": [
            "methods.contrastive.samples_per_class=2",
        ],
        "protocol.final_metrics is ['NMI', 'AMI'] there and [] here": ["protocol.final_metrics=[]"],
        "seed is 0 there and 1 here": ["seed=1", "protocol.search.trials=9"],
    }
    for sentence, given in fewer.items():
        said = refusal(tiny, at_once.parent, *LARGE, *given)
        assert sentence in said
        assert "another folder with --out" in said
        assert "reality-check report A B --out C" in said
        assert "only trials, searches, reproductions, final metrics and methods may be more" in said
    assert not (at_once / "steps.json").exists()


@pytest.mark.slow
def test_the_report_names_the_steps(step_by_step: tuple[Path, list[str]]) -> None:
    out, _ = step_by_step
    found = {one.topic: one for one in rc.load_results(out).deviations}
    extended = found["extended search"]
    assert extended.serious
    assert "Step 1 (20" in extended.text
    assert "protocol.search.trials from 2 to 3" in extended.text
    assert "after their results could be seen (2 of normalized_softmax)" in extended.text
    assert found["more runs"].serious
    assert "protocol.reproductions from 1 to 2" in found["more runs"].text
    assert not found["grown in steps"].serious
    assert "methods + contrastive" in found["grown in steps"].text
    assert "Step 4" in found["grown in steps"].text
    assert "The searches were extended after" in (out / "report.md").read_text()
    steps = json.loads((out / "steps.json").read_text())
    assert [sorted(step["changes"]) for step in steps] == [
        ["protocol.search.trials"],
        ["protocol.reproductions"],
        ["protocol.final_metrics"],
        ["methods"],
    ]
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["reproduction"] for row in rows} == {"0", "1"}
