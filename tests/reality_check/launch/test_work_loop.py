from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from support.spied import Handed, Made, Spied, experiment, made_up_fold_runs

from pml_extensions.evaluation import class_separability
from reality_check.config.metrics import METRICS, Stage
from reality_check.data import ImageSet
from reality_check.evaluation.scoring import Diverged
from reality_check.launch import work_loop
from reality_check.launch.scorer import load_kept, network_seed
from reality_check.launch.trial_runner import TrialRunner
from reality_check.launch.work_loop import WorkLoop, work_on
from reality_check.models.pipeline import build_pipeline
from reality_check.report.collect import collect
from reality_check.results import ExperimentResults
from reality_check.studies.output_folder import fold_folder, trial_folder
from reality_check.studies.plan import Given, PlannedStudy, StudyKey
from reality_check.training import trainer
from reality_check.training.fold import FoldTask
from reality_check.training.prepared_experiment import PreparedMethod
from reality_check.training.trainer import FoldResult, Trainer
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.interrupt import Stopped

FACTOR = "schedules.alpha.factor"
ONE_METHOD = {"base": "contrastive", "samples_per_class": 2}


def names(labels: range | list[int]) -> tuple[str, ...]:
    return tuple(f"class {label}" for label in labels)


@dataclasses.dataclass
class MadeUp:
    """A campaign whose fold runs were made up."""

    recorded: Spied
    handed: Handed
    #: By stage, whether the test images were open when one of its trials went on.
    opened: dict[str, set[bool]]


@pytest.fixture(scope="module")
def made_up(
    make_images: Callable[..., ImageSet], tmp_path_factory: pytest.TempPathFactory
) -> MadeUp:
    opened: dict[str, set[bool]] = {}

    def note(state: dict[str, Any]) -> None:
        opened.setdefault(state["doing"], set()).add("test_set" in recorded.prepared.__dict__)

    folder = tmp_path_factory.mktemp("made_up")
    recorded = Spied(experiment(), folder, make_images(16), on_progress=note)
    with made_up_fold_runs() as handed:
        recorded.work()
    assert recorded.is_complete()
    return MadeUp(recorded, handed, opened)


# -- which classes reach training --------------------------------------------------------------


def test_fold_runs_are_never_handed_a_test_class(made_up: MadeUp) -> None:
    handed = made_up.handed
    test = set(names(range(8, 16)))
    stages = Counter(folder.parts[-3] for *_, folder in handed)
    # Methods x trials x folds; the complete run has no folds.
    assert stages == {"search": 2 * 2 * 4, "reproductions": 2 * 2 * 4, "final": 2 * 2}
    for task, train, validation, folder in handed:
        assert not set(train) & test
        if folder.parts[-3] == "final":
            assert (train, validation) == (names(range(8)), None)
            assert task.fixed_epochs is not None
            continue
        # Section 1: fold 0 validates on the last block, fold 1 on the first, and so on.
        block = {0: [6, 7], 1: [0, 1], 2: [2, 3], 3: [4, 5]}[int(folder.name.rpartition("_")[2])]
        assert validation == names(block)
        assert train == names([label for label in range(8) if label not in block])
        assert task.fixed_epochs is None


def test_the_test_images_are_not_opened_before_the_parameters_are_fixed(made_up: MadeUp) -> None:
    assert made_up.opened["search"] == {False}
    assert True in made_up.opened["reproductions"]


def test_the_complete_model_is_as_wide_as_the_ensemble_and_trains_the_mean_of_epochs(
    made_up: MadeUp,
) -> None:
    handed = made_up.handed
    complete = [task for task, *_, folder in handed if folder.parts[-3] == "final"]
    assert {task.embedding_size for task in complete} == {16}
    # All fold runs report epoch 3, of which 1 in the follow-up phase.
    assert {task.fixed_epochs for task in complete} == {(2, 1)}
    assert {task.embedding_size for task, *_, f in handed if f.parts[-3] != "final"} == {4}


def test_only_search_trials_leave_no_model(made_up: MadeUp) -> None:
    for task, *_, folder in made_up.handed:
        assert task.keep_model == (folder.parts[-3] != "search")


def test_seeds_differ_between_runs_and_networks_are_shared_between_methods(
    made_up: MadeUp,
) -> None:
    recorded, handed = made_up.recorded, made_up.handed
    seeds: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {}
    for task, *_, folder in handed:
        method, stage, number, fold = folder.parts[-4:]
        if stage != "search":  # networks are shared where the same trial of the search is retrained
            trial = recorded.state(method, Stage(stage)).retrained[int(number)].trial_index
            number = f"trial {trial} retrained as {number}"
        run = stage, number, fold
        seeds.setdefault(method, {})[run] = (task.network_seed, task.loss_seed)
    one, other = seeds["contrastive"], seeds["heated_up_softmax"]
    assert len(one) == len(other)
    networks = {run: network for run, (network, _) in [*one.items(), *other.items()]}
    assert all(network == networks[run] for run, (network, _) in one.items())
    assert len(set(networks.values())) == len(networks)
    losses = [loss for _, loss in itertools.chain(one.values(), other.values())]
    assert len(set(losses)) == len(losses)


def test_another_seed_changes_every_seed(made_up: MadeUp) -> None:
    tasks = [task for task, *_ in made_up.handed]
    first = {seed for task in tasks for seed in (task.network_seed, task.loss_seed)}
    for stage, trial_index, fold in itertools.product(
        (Stage.SEARCH, Stage.REPRODUCTIONS), range(2), range(4)
    ):
        keys = [stage, trial_index], [stage, 0, trial_index % 2, trial_index // 2]
        assert not {network_seed(1, key, fold) for key in keys} & first


def test_reproductions_retrain_the_winner_of_the_search(made_up: MadeUp) -> None:
    recorded, handed = made_up.recorded, made_up.handed
    for method in recorded.experiment.methods:
        winner = recorded.state(method.name, Stage.SEARCH).best
        assert winner is not None
        stages = {u.stage: u for u in recorded.states().ready() if u.method == method.name}
        values = {
            trial_index: trial.value for trial_index, trial in stages["search"].complete.items()
        }
        assert winner.trial_index == max(values, key=lambda trial_index: values[trial_index] or 0)
        given = stages["reproductions"].given, stages["final"].given
        assert given[0] is not None
        assert given[1] is not None
        assert given[0][0] == winner.params
        fixed = dict(given[1][0] or {})
        assert (fixed.pop("epochs"), fixed.pop("follow_up_epochs")) == (2, 1)
        assert fixed == winner.params
        runs = [task for task, *_, f in handed if f.parts[-4:-2] == (method.name, "final")]
        assert all(task.settings.params == winner.params for task in runs)


# -- what is recorded --------------------------------------------------------------------------


def test_a_trials_value_is_the_mean_of_its_folds(made_up: MadeUp) -> None:
    for unit in made_up.recorded.states().ready():
        if unit.stage in ("search", "reproductions"):
            for trial in unit.complete.values():
                folds = trial.fold_values
                assert len(folds) == 4
                assert trial.value == pytest.approx(sum(folds) / 4)


#: Of the test classes.
ASKED = ["recall_at_2", "NMI", "separability", "binary_recall_at_2"]
#: Of the images or the networks too.
FURTHER = [
    *("trace_within_raw", "trainval_separability", "trainval_trace_within_raw"),
    *("verification_accuracy", "AvgDTP", "verification_LFW", "verification_LFW_se"),
]
#: Heats up within one phase; what is fitted before it is fitted before every training.
GRADUAL = {
    "base": "heated_up_softmax_bn",
    "name": "gradual",
    "before_training": {"batch_statistics": True, "proxies": "class_means"},
    "schedules": {"alpha": {"kind": "linear", "factor": {"low": 0.1, "high": 0.5}}},
    "phase2": None,
}
METHODS = ("contrastive", "heated_up_softmax", "gradual")


@dataclasses.dataclass
class Trained:
    """A campaign whose networks were trained, with everything that a protocol may ask for."""

    recorded: Spied
    results: ExperimentResults
    #: Of ``gradual``, on what each training was whose first values were fitted.
    fitted: list[str]


@pytest.fixture(scope="module")
def trained(
    make_images: Callable[..., ImageSet], tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "pairs.txt").write_text("8/0 8/1 1\n8/0 9/1 0\n" * 10)
    protocol = experiment().plain()["protocol"] | {
        "final_metrics": [*ASKED, *FURTHER],
        "pairs": {"LFW": {"file": str(folder / "pairs.txt")}},
        "gallery": 3,
        "selects_by": "recall_at_4",
    }
    methods = [*experiment().plain()["methods"], GRADUAL]
    recorded = Spied(experiment(protocol=protocol, methods=methods), folder, make_images(16))
    data = recorded.prepared.dataset
    samples = [f"{label}/{row % 6}" for row, label in enumerate(data.labels)]
    fitted: list[str] = []
    fit = trainer.fit_first_values

    def note(task: FoldTask, *others: Any) -> None:
        fit(task, *others)
        if task.settings.name == "gradual":
            fitted.append("fixed" if task.fixed_epochs else "folds")
            assert task.settings.schedules["alpha"].factor == task.settings.params[FACTOR]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(trainer, "fit_first_values", note)
        patch.setitem(vars(data), "sample_names", np.array(samples, dtype=object))
        recorded.work()
        results = collect(recorded)
    return Trained(recorded, results, fitted)


def values_of(results: ExperimentResults) -> dict[tuple[str, str, int, str], float]:
    """The scores by method, category, reproduction, and metric."""
    return {(r.method, r.category, r.reproduction, r.metric): r.value for r in results.rows}


def kept_embeddings(
    recorded: Spied, method: PreparedMethod, place: tuple[Stage, int, int], samples: ImageSet
) -> torch.Tensor:
    """What the network that is kept of a training makes of some images."""
    shape = recorded.prepared.input_shape(method.name)
    network = load_kept(recorded.out_dir, method, place, shape).eval()
    augmentation = method.training.augmentation
    images = build_pipeline(samples, method.model, augmentation, recorded.prepared.device)
    with torch.no_grad():
        return torch.cat([network(batch) for batch in images.evaluation_batches()])


def test_a_whole_small_campaign_trains_and_scores(trained: Trained) -> None:
    recorded = trained.recorded
    assert recorded.is_complete()
    for unit in recorded.states().ready():
        for trial in unit.complete.values():
            scores = trial.scores
            if unit.stage in ("reproductions", "final"):
                assert scores is not None
                assert all(
                    0 <= metrics[name] <= 1 for metrics in scores.values() for name in METRICS
                )
            elif unit.stage == "search":
                assert scores is None
    worked = list(recorded.out_dir.rglob("model.pt"))
    assert len(worked) == 3 * (2 * 4 + 2)


def test_metrics_on_request_are_measured_on_the_test_classes_only(trained: Trained) -> None:
    recorded, asked = trained.recorded, {*ASKED, *FURTHER}
    for unit in recorded.states().ready():
        for trial in unit.complete.values():
            if unit.stage == "search":
                assert not asked & set(str(trial).split("'"))
            else:
                scores = trial.scores
                assert all({*ASKED} <= set(metrics) for metrics in scores.values())
    for records in recorded.out_dir.rglob("records/curves.csv"):
        assert not any(name in records.read_text() for name in asked)
    names = {(row.method, row.category, row.metric) for row in trained.results.rows}
    for method, category in itertools.product(METHODS, ("aggregate", "ensemble", "complete")):
        for metric in (*ASKED, "NMI_raw", "separability_raw"):
            assert (method, category, metric) in names


def test_gradual_heating_is_searched_and_what_is_fitted_before_is_in_all_stages(
    trained: Trained,
) -> None:
    assert Counter(trained.fitted) == {"folds": (2 + 2) * 4, "fixed": 2}
    for trial in trained.recorded.state("gradual", Stage.SEARCH).complete.values():
        assert 0.1 <= trial.params[FACTOR] <= 0.5


def test_another_metric_of_the_validation_classes_may_choose(trained: Trained) -> None:
    results = trained.results
    assert results.selected_by.title == "R@4"
    for record in (*results.methods[0].search, *results.methods[0].reproductions):
        for fold, curve in enumerate(record.curves):
            epochs = [(value, -epoch) for epoch, value in curve if epoch > 0]
            assert record.fold_values[fold] == max(epochs)[0]
            assert record.fold_epochs[fold] == -max(epochs)[1]
    (said,) = [d for d in results.deviations if "selects_by" in d.text]
    assert "recall_at_4" in said.text


def test_separability_is_measured_on_the_trainval_images_where_asked_for(
    trained: Trained,
) -> None:
    recorded, values = trained.recorded, values_of(trained.results)
    prepared = recorded.prepared
    trainval = prepared.dataset.subset(prepared.splits.trainval)
    for name in ("contrastive", "heated_up_softmax"):
        method = prepared.method(name)
        embeddings = kept_embeddings(recorded, method, (Stage.FINAL, 0, 0), trainval)
        raw = class_separability(embeddings, trainval.labels)
        unit = class_separability(embeddings, trainval.labels, normalize=True)
        found = {metric: values.get((name, "complete", 0, metric)) for metric in FURTHER}
        assert found["trainval_trace_within_raw"] == pytest.approx(raw.trace_within)
        assert found["trainval_separability"] == pytest.approx(unit.ratio)
        assert found["trace_within_raw"] != found["trainval_trace_within_raw"]
        assert (name, "ensemble", 0, "trainval_separability") in values
        assert 0.3 < found["verification_accuracy"] <= 1
        assert (name, "aggregate", 1, "trainval_separability_raw") in values


def test_distances_to_proxies_and_listed_pairs(trained: Trained) -> None:
    """Of the weights that are kept, on the classes that they were trained on."""
    recorded, values = trained.recorded, values_of(trained.results)
    method, splits = recorded.prepared.method("heated_up_softmax"), recorded.prepared.splits
    expected = []
    for stage, fold, classes in [
        *((Stage.REPRODUCTIONS, n, fold.train) for n, fold in enumerate(splits.folds)),
        (Stage.FINAL, 0, splits.trainval),
    ]:
        samples = recorded.prepared.dataset.subset(classes)
        folder = fold_folder(recorded.out_dir, method.name, stage, 0, fold)
        (own,) = (checkpoints.load(folder / "proxies.pt") or {}).values()
        x = kept_embeddings(recorded, method, (stage, 0, fold), samples).double()
        distances = [
            (one - own[label]).norm() for one, label in zip(x, samples.labels, strict=True)
        ]
        expected.append(float(torch.stack(distances).mean()))
    assert values[method.name, "complete", 0, "AvgDTP"] == pytest.approx(expected[-1])
    assert values[method.name, "aggregate", 0, "AvgDTP"] == pytest.approx(fmean(expected[:-1]))
    assert {(m, c) for m, c, _, metric in values if metric == "AvgDTP"} == {
        (name, category) for name in METHODS[1:] for category in ("aggregate", "complete")
    }
    for category in ("aggregate", "ensemble", "complete"):
        assert 0 <= values["contrastive", category, 1, "verification_LFW_raw"] <= 1


def test_a_gallery_is_drawn_once_a_method_where_one_is_asked_for(trained: Trained) -> None:
    folder, methods = trained.recorded.out_dir, trained.results.methods
    places = {name: folder / name / "reproductions" / "000" / "gallery.png" for name in METHODS}
    assert {*folder.rglob("*.png")} == {*places.values()}
    assert {method.name: method.gallery for method in methods} == places
    places["contrastive"].unlink()
    galleries = {method.name: method.gallery for method in collect(trained.recorded).methods}
    assert galleries == places | {"contrastive": None}


def test_a_diverged_reproduction_counts_as_0_in_the_metrics_on_request_too(
    make: Made, handed: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any) -> None:
        raise Diverged("made up")

    monkeypatch.setattr(TrialRunner, "_reproduce", diverge)
    monkeypatch.setattr(TrialRunner, "_train_final", diverge)
    monkeypatch.setattr("reality_check.studies.plan.final_epochs", lambda *_: (1, 0))
    protocol = experiment().plain()["protocol"] | {"final_metrics": ["recall_at_2", "AMI"]}
    recorded = make(protocol=protocol, methods=[ONE_METHOD])
    recorded.work()
    values = {(row.category, row.metric): row.value for row in collect(recorded).rows}
    assert len(values) == 3 * 2 * 5, "in both geometries"
    assert set(values.values()) == {0.0}
    assert {("ensemble", "AMI"), ("complete", "mean_average_precision_at_r_raw")} <= set(values)


def test_only_trials_of_several_folds_take_several_processes(make: Made) -> None:
    recorded = make()
    runner = TrialRunner(recorded.prepared, recorded.out_dir, folds_at_once=3)
    rest = 1, 1, 0, Given()
    taken = {
        stage: runner.resources(PlannedStudy(StudyKey("", stage), *rest, folds=folds))
        for stage, folds in {**dict.fromkeys(Stage), Stage.RACE: range(1, 3)}.items()
    }
    own = PlannedStudy(StudyKey("", Stage.REPRODUCTIONS), *rest, own_networks=True)
    assert runner.resources(own)["processes"] == 1
    assert {stage: each["processes"] for stage, each in taken.items()} == {
        Stage.SEARCH: 3,
        Stage.RACE: 2,
        Stage.REPRODUCTIONS: 3,
        Stage.FINAL: 1,
        Stage.BASELINES: 1,
    }
    assert {each["device"] for each in taken.values()} == {"cpu"}


# -- diverged and failed -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def diverging(
    make_images: Callable[..., ImageSet], tmp_path_factory: pytest.TempPathFactory
) -> MadeUp:
    """All trainings of ``contrastive`` diverge; of ``heated_up_softmax``, one in each stage.

    Its search reports other epochs than its reproductions.
    """

    def run(self: Trainer) -> FoldResult:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "latest.pt").write_bytes(b"")
        method, *place = self.folder.parts[-4:]
        if method == "contrastive" or place in (
            ["search", "001", "fold_2"],
            ["reproductions", "001", "fold_3"],
        ):
            raise Diverged("the loss became nan")
        if place == ["search", "001", "fold_0"]:
            # A worker that was paused writes after another one did its trial.
            (self.folder.parents[1] / "000" / "fold_0" / "latest.pt").write_bytes(b"")
        result = made_up_run(self)
        in_search = place[0] == "search"
        return dataclasses.replace(result, epoch=9, follow_up_epochs=5) if in_search else result

    folder = tmp_path_factory.mktemp("diverging")
    recorded = Spied(experiment(), folder, make_images(16))
    with made_up_fold_runs() as handed, pytest.MonkeyPatch.context() as patch:
        made_up_run = Trainer.run
        patch.setattr(Trainer, "run", run)
        recorded.work()
    assert recorded.is_complete()
    return MadeUp(recorded, handed, {})


def test_a_diverged_fold_makes_a_trial_of_value_0_without_checkpoints(diverging: MadeUp) -> None:
    recorded = diverging.recorded
    search = recorded.state("heated_up_softmax", Stage.SEARCH)
    trial = search.complete[1]
    assert (trial.value, trial.diverged) == (0.0, "the loss became nan")
    folder = trial_folder(recorded.out_dir, "heated_up_softmax", Stage.SEARCH, 1)
    assert folder.is_dir()
    assert list(folder.rglob("*.pt")) == []
    assert search.best is not None
    assert search.best.trial_index == 0


def test_after_one_diverged_reproduction_the_final_stage_goes_by_the_other(
    diverging: MadeUp,
) -> None:
    recorded = diverging.recorded
    reproductions = recorded.state("heated_up_softmax", Stage.REPRODUCTIONS)
    reasons = [trial.diverged for trial in reproductions.complete.values()]
    assert reasons == [None, "the loss became nan"]
    final = [task for task, *_, folder in diverging.handed if folder.parts[-3] == "final"]
    assert [task.fixed_epochs for task in final] == [(2, 1)] * 2, "not those of the search"
    kept = {path.parts[-5:-2] for path in recorded.out_dir.rglob("*.pt")}
    places = [("reproductions", "000"), ("final", "000"), ("final", "001")]
    assert kept == {("heated_up_softmax", *place) for place in places}


def test_a_method_that_always_diverges_has_no_further_stages_and_stops_nobody(
    diverging: MadeUp,
) -> None:
    stages = [(unit.method, unit.stage) for unit in diverging.recorded.states().ready()]
    assert ("contrastive", "search") in stages
    assert ("contrastive", "reproductions") not in stages
    assert ("heated_up_softmax", "final") in stages


def test_an_exception_stops_all_workers_until_the_user_starts_afresh(
    make: Made, handed: Handed, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def broken(self: Trainer) -> FoldResult:
        calls.append(1)
        raise RuntimeError("a bug in the loss")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", broken)
        with pytest.raises((RuntimeError, WorkFailed), match="a bug in the loss"):
            make(methods=[ONE_METHOD]).work()
        for _ in range(2):
            with pytest.raises(WorkFailed, match=r"contrastive, search: .*a bug in the loss"):
                make(methods=[ONE_METHOD]).work()
        assert len(calls) == 1
    again = make(methods=[ONE_METHOD])
    again.clear_failures()
    again.work()
    assert again.is_complete()


def test_polls_are_further_apart_where_they_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(work_loop, "pause", pauses.append)
    for seconds in (0.0, 0.05, 0.5, 1.5, 60.0):
        work_loop._pause_after_poll(seconds)
    assert pauses == [1.0, 1.0, 5.0, 15.0, 15.0]


def test_a_worker_without_work_says_so_and_waits_as_long_as_its_poll_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    complete = iter([False, True])
    states = SimpleNamespace(is_complete=lambda: next(complete), ready=lambda: [])
    recorded = SimpleNamespace(
        states=lambda: states, tidy=lambda: said.append("tidy"), experiment=None
    )
    runner = SimpleNamespace(on_progress=lambda state: said.append(state["doing"]))
    loop = WorkLoop(recorded, runner)  # type: ignore[arg-type]
    clock = iter([5.0, 5.3, 6.0])
    monkeypatch.setattr(work_loop, "next_units", lambda states: iter(()))
    monkeypatch.setattr(work_loop, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(work_loop, "pause", lambda seconds: said.append(f"pause {seconds:g}"))
    work_on([loop])
    assert said == ["waiting for other workers", "pause 3", "tidy"]


class MadeUpLoop:
    """The loop of one data set, whose steps end as they are told; each step is noted."""

    def __init__(self, name: str, outcomes: Sequence[str | Exception], steps: list[str]) -> None:
        self._name, self._outcomes, self._steps = name, iter(outcomes), steps
        self.experiment = SimpleNamespace(name=name)
        self.forgot = False
        self.runner = SimpleNamespace(forget_data=lambda: setattr(self, "forgot", True))

    def step(self) -> str:
        outcome = next(self._outcomes)
        self._steps.append(f"{self._name} {outcome}")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of loops, and pauses between them."""
    noted: list[str] = []
    monkeypatch.setattr(work_loop, "pause", lambda seconds: noted.append("pause"))
    return noted


def work_on_made_up(steps: list[str], *outcomes: Sequence[str | Exception]) -> list[str]:
    """Work on loops that are called a, b, ...; return what happened."""
    loops = [MadeUpLoop(name, each, steps) for name, each in zip("abc", outcomes, strict=False)]
    work_on(loops)  # type: ignore[arg-type]
    return steps


def test_a_worker_goes_on_to_the_next_data_set_and_comes_back(steps: list[str]) -> None:
    first = ["worked", "wait", "worked", "done"]
    assert work_on_made_up(steps, first, ["worked", "done"]) == [
        "a worked",
        "a wait",  # for another worker
        "b worked",
        "a worked",  # at once, since the first one comes first
        "a done",
        "b done",
    ]


def test_a_worker_pauses_only_when_no_data_set_has_work(steps: list[str]) -> None:
    waits = ["wait", "wait", "done"]
    assert work_on_made_up(steps, waits, ["wait", "worked", "done"], ["done"]) == [
        *("a wait", "b wait", "c done", "pause"),
        *("a wait", "b worked"),
        *("a done", "b done"),
    ]


@pytest.mark.parametrize("error", [WorkFailed("odd"), UsageError("odd")], ids=["failed", "usage"])
def test_a_data_set_that_fails_does_not_end_the_others(steps: list[str], error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        work_on_made_up(steps, ["worked", error], ["worked", "wait", "done"], ["worked", "done"])
    assert str(caught.value) == f"a: {error}", "it says on which data set"
    assert steps == [
        *("a worked", "a odd", "b worked"),
        *("b wait", "c worked"),
        *("b done", "c done"),
    ]


def test_of_several_failures_the_first_is_raised(steps: list[str]) -> None:
    late, early = WorkFailed("late"), UsageError("early")
    with pytest.raises(UsageError, match="early"):
        work_on_made_up(steps, ["worked", "wait", late], [early], ["worked", "done"])
    assert steps[-2:] == ["a late", "c done"]


def test_nothing_else_is_waited_for_after_the_last_failure(steps: list[str]) -> None:
    with pytest.raises(WorkFailed, match="one"):
        work_on_made_up(steps, [WorkFailed("one")], [WorkFailed("other")])
    assert steps == ["a one", "b other"]


@pytest.mark.parametrize("error", [Stopped(), KeyError("x")], ids=["stopped", "unexpected"])
def test_what_ends_a_worker_ends_it_at_once(steps: list[str], error: Exception) -> None:
    with pytest.raises(type(error)):
        work_on_made_up(steps, [WorkFailed("odd")], [error], ["worked", "done"])
    assert len(steps) == 2


def test_a_worker_that_is_asked_to_stop_begins_nothing(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([None, None, Stopped()])

    def check() -> None:
        if (error := next(asked)) is not None:
            raise error

    monkeypatch.setattr(work_loop, "check", check)
    with pytest.raises(Stopped):
        work_on_made_up(steps, ["worked", "worked", "worked", "done"], ["done"])
    assert steps == ["a worked", "a worked"]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("CUDA error: an illegal memory access was encountered"),
            WorkFailed,
            r"illegal memory access .* protocol\.training\.gpu\.cuda_graph=false it continues",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has"),
            WorkFailed,
            "CUDA out of memory.*fewer folds at once",
        ),
        (UsageError("write something else"), UsageError, "write something else"),
        (SystemExit(4), WorkFailed, r"sys\.exit\(4\)"),
    ],
)
def test_an_error_in_a_worker_is_one_sentence_for_all(
    make: Made, monkeypatch: pytest.MonkeyPatch, error: BaseException, kind: Any, said: str
) -> None:
    monkeypatch.setattr(Trainer, "run", Mock(side_effect=error))
    for _ in range(2):
        with pytest.raises(kind, match=said) as caught:
            make().work()
        assert "\n" not in str(caught.value)


def test_a_data_set_that_is_done_leaves_memory_if_another_one_needs_it(steps: list[str]) -> None:
    first, last = MadeUpLoop("a", ["done"], steps), MadeUpLoop("b", ["worked", "done"], steps)
    work_on([first, last])  # type: ignore[list-item]
    assert (first.forgot, last.forgot) == (True, False)
