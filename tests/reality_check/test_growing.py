"""An experiment that grows in its folder: what is there stays, and the end is as if from the start.

One worker, and TPE, which models the last trial: the files of results are the same byte for byte.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from support.in_process import run_command

import reality_check as rc
from reality_check.launch.trial_runner import TrialRunner
from reality_check.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("blank_figures")

#: Few parameters: TPE draws at least one trial for each at random.
SOFTMAX = "{base: quick/normalized_softmax, arguments: {temperature: 0.1}}"
SMALL = [
    "protocol.search.trials=3",
    "protocol.reproductions=1",
    "protocol.final_metrics=[]",
    f"methods=[{SOFTMAX}]",
]
LARGE = [
    "protocol.search.trials=4",
    "protocol.reproductions=2",
    "protocol.final_metrics=[NMI,AMI]",
    f"methods=[quick/contrastive,{SOFTMAX}]",
]
#: One step a training: what grows is which trainings there are.
SHORT = (
    *("protocol.training.max_epochs=1", "protocol.training.iterations_per_epoch=1"),
    *("protocol.search.sampler=tpe", "protocol.search.startup_trials=2"),
)
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


@dataclasses.dataclass
class Grown:
    """The small experiment after it has grown into the large one.

    Attributes:
        out: its output folder.
        said: what each step said.
        trained: the folders of the trainings of each step.
        retrained: which trials of the search were retrained, before the first step and after each.
    """

    out: Path
    said: list[str]
    trained: list[list[str]]
    retrained: list[tuple[tuple[int, int], ...]]


@pytest.fixture(scope="module")
def step_by_step(tiny: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Grown:
    """More trials and a metric, more reproductions, another metric, a method, each in its turn."""
    folder = tmp_path_factory.mktemp("step_by_step") / "copy"
    shutil.copytree(small, folder)
    out = folder / "out"
    _, reproductions, _, methods = SMALL
    nmi = "protocol.final_metrics=[NMI]"
    steps = [
        [LARGE[0], reproductions, nmi, methods],
        [*LARGE[:2], nmi, methods],
        [*LARGE[:3], methods],
        LARGE,
    ]
    build = Trainer.build
    trained: list[str] = []

    def noting(self: Trainer) -> None:
        trained.append(str(self.folder.relative_to(out)))
        build(self)

    def retrained() -> tuple[tuple[int, int], ...]:
        return rc.load_results(out).methods[-1].retrained

    grown = Grown(out, [], [], [retrained()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "build", noting)
        for given in steps:
            grown.said.append(run(tiny, folder, *given))
            grown.trained.append(list(trained))
            grown.retrained.append(retrained())
            trained.clear()
    return grown


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
def test_step_by_step_to_the_same_end(step_by_step: Grown, at_once: Path) -> None:
    steps = [
        "protocol.search.trials from 3 to 4, protocol.final_metrics + NMI",
        "protocol.reproductions from 1 to 2",
        "protocol.final_metrics + AMI",
        "methods + contrastive",
    ]
    for step, text in zip(steps, step_by_step.said, strict=True):
        assert f"The experiment is extended: {step}. Existing results are kept." in text
    same(step_by_step.out, at_once)


@pytest.mark.slow
def test_nothing_that_is_there_is_trained_again(step_by_step: Grown) -> None:
    of_trials, of_reproductions, of_metric, of_method = step_by_step.trained
    folds = ("fold_0", "fold_1")
    old = [name for name in of_trials if name.startswith("normalized_softmax/search")]
    assert old == [f"normalized_softmax/search/003/{fold}" for fold in folds]
    again = [name for name in of_trials if name.startswith("normalized_softmax/reproductions/000")]
    before, after, *_ = step_by_step.retrained
    assert bool(again) == (before != after), "only another winner is retrained"
    new = [f"normalized_softmax/reproductions/001/{fold}" for fold in folds]
    assert of_reproductions == [*new, "normalized_softmax/final/001/fold_0"]
    assert of_metric == []
    assert {name.split("/")[0] for name in of_method} == {"contrastive"}


@pytest.mark.slow
def test_reproductions_of_several_searches_keep_their_numbers(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More searches, and then more reproductions of each: nothing is trained twice."""
    some = ["protocol.categories=[aggregate]", "protocol.search.kind=repeated"]
    some += ["protocol.search.trials=1", "protocol.search.startup_trials=1"]
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
    assert done[0] == ("search", 2, 0)
    assert done[1:3] == [("reproductions", 0, 4), ("reproductions", 0, 5)]
    after = rc.load_results(tmp_path / "out")
    assert [row for row in after.records() if row["reproduction"] < 2] == before
    searches = {row["reproduction"]: row["search"] for row in after.records()}
    assert searches == {0: 0, 1: 1, 2: 0, 3: 1, 4: 2, 5: 2}


@pytest.mark.slow
def test_what_is_refused(tiny: Path, at_once: Path) -> None:
    fewer = {
        "protocol.search.trials is 4 there and 2 here": ["protocol.search.trials=2"],
        "protocol.reproductions is 2 there and 1 here": ["protocol.reproductions=1"],
        "methods is ['contrastive', 'normalized_softmax'] there and ['contrastive'] here": [
            "methods=[quick/contrastive]"
        ],
        "methods.contrastive.samples_per_class is 4 there and 2 here": [
            "methods.contrastive.samples_per_class=2",
        ],
        "protocol.final_metrics is ['NMI', 'AMI'] there and [] here": ["protocol.final_metrics=[]"],
        "seed is 0 there and 1 here": ["seed=1", "protocol.search.trials=9"],
        "protocol.search.startup_trials is 2 there and 3 here": [
            *("protocol.search.trials=5", "protocol.search.startup_trials=3")
        ],
    }
    for sentence, given in fewer.items():
        said = refusal(tiny, at_once.parent, *LARGE, *given)
        assert sentence in said
        assert "another folder with --out" in said
        assert "reality-check report A B --out C" in said
        assert "only trials, searches, reproductions, final metrics and methods may be more" in said
    assert not (at_once / "steps.json").exists()


@pytest.mark.slow
def test_the_report_names_the_steps(step_by_step: Grown) -> None:
    out = step_by_step.out
    found = {one.topic: one for one in rc.load_results(out).deviations}
    extended = found["extended search"]
    assert extended.serious
    assert "Step 1 (20" in extended.text
    assert "protocol.search.trials from 3 to 4" in extended.text
    assert "after their results could be seen (3 of normalized_softmax)" in extended.text
    assert found["more runs"].serious
    assert "protocol.reproductions from 1 to 2" in found["more runs"].text
    assert not found["grown in steps"].serious
    assert "methods + contrastive" in found["grown in steps"].text
    assert "Step 4" in found["grown in steps"].text
    assert "The searches were extended after" in (out / "report.md").read_text()
    steps = json.loads((out / "steps.json").read_text())
    assert [sorted(step["changes"]) for step in steps] == [
        ["protocol.final_metrics", "protocol.search.trials"],
        ["protocol.reproductions"],
        ["protocol.final_metrics"],
        ["methods"],
    ]
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["reproduction"] for row in rows} == {"0", "1"}
