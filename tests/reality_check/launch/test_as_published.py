"""Experiments with fixed values: schedules, phases of fixed length, and who selects the epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy.event import listen
from support.worked_experiment import WorkedExperiment

from reality_check.config import Experiment, compose
from reality_check.config.metrics import SELECTS_ON_TEST
from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data import ImageSet
from reality_check.report.collect import collect
from reality_check.report.deviations import find_deviations
from reality_check.report.writing import write_report
from reality_check.studies.plan import count_trainings
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod, FilledSecondPhase, fill_method
from reality_check.training.module import TrainingModule
from reality_check.training.trainer import Trainer
from reality_check.utils.errors import UsageError

CPU = torch.device("cpu")
MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 4}, pooling="flatten")
RATES = {"trunk": 0.1, "embedder": 0.2, "loss": 0.4}
SOFTMAX = "pml_extensions.losses.NormalizedSoftmaxLoss"


def training(**changes: Any) -> Training:
    part = {"name": "SGD", "lr": 0.0}
    values = {
        "batch_size": 8,
        "iterations_per_epoch": 2,
        "max_epochs": 6,
        "evaluate_every": 2,
        "patience": None,
        "freeze_batchnorm": False,
        "optimizers": {"trunk": part, "embedder": part, "loss": part},
    }
    return Training.model_validate({**values, **changes})


def settings(loss: str = SOFTMAX, second: bool = False, **changes: Any) -> FilledMethod:
    phase = FilledSecondPhase({}, {}, lr_factor=0.5, loss_lr_factor=0.25) if second else None
    values: dict[str, Any] = {"learning_rates": RATES, "second_phase": phase, **changes}
    return FilledMethod(
        "m", loss, {}, None, 2, loss_weight_decay=0.0, normalize_embeddings=True, **values
    )


def task(method: FilledMethod, how: Training, **changes: Any) -> FoldTask:
    return FoldTask(method, MODEL, how, 4, network_seed=1, loss_seed=2, **changes)


def module_of(how: Training, method: FilledMethod | None = None) -> TrainingModule:
    return TrainingModule(task(method or settings(), how), 4, (16, 16, 1), CPU)


def rates(of: TrainingModule) -> dict[str, float]:
    return {name: o.param_groups[0]["lr"] for name, o in of.optimizers.items()}


# -- learning rates and parts ------------------------------------------------------------------


def test_a_schedule_moves_the_rates_of_all_parts_also_in_the_second_phase() -> None:
    made = module_of(training(schedule={"kind": "step", "at": [1], "factor": 0.1}))
    made.set_iteration(1, 2)
    assert rates(made) == pytest.approx(RATES)
    made.set_iteration(2, 2)
    assert rates(made) == pytest.approx({k: 0.1 * v for k, v in RATES.items()})
    made.enter_second_phase(FilledSecondPhase({}, {}, lr_factor=0.5, loss_lr_factor=0.25))
    made.set_iteration(3, 2)
    assert rates(made) == pytest.approx({"trunk": 0.005, "embedder": 0.01, "loss": 0.01})


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.randn(8, 1, 16, 16, generator=torch.Generator().manual_seed(3))
    return images, torch.arange(4).repeat_interleave(2)


def weights(made: TrainingModule, part: str) -> torch.Tensor:
    module = made.loss if part == "loss" else getattr(made.network, part)
    return torch.cat([p.detach().flatten().clone() for p in module.parameters()])


def test_the_trunk_waits_while_it_is_frozen() -> None:
    made = module_of(training(freeze_trunk_epochs=1, optimizers={
        part: {"name": "SGD", "lr": 0.0, "arguments": {"momentum": 0.9}} for part in RATES
    }))  # fmt: skip
    made.train()
    before = {part: weights(made, part) for part in RATES}
    made.set_iteration(1, 2)
    made.step(*batch())
    assert torch.equal(weights(made, "trunk"), before["trunk"])
    assert not made.optimizers["trunk"].state  # no momentum gathers meanwhile
    for part in ("embedder", "loss"):
        assert not torch.equal(weights(made, part), before[part])
    made.set_iteration(2, 2)
    made.step(*batch())
    assert not torch.equal(weights(made, "trunk"), before["trunk"])


def test_a_frozen_batchnorm_can_keep_its_affine_values_too() -> None:
    made = module_of(training(freeze_batchnorm="with_affine"))
    made.train()
    norms = [m for m in made.network.trunk.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    before = {k: v.clone() for k, v in made.network.trunk.state_dict().items()}
    made.step(*batch())
    changed = {
        k for k, v in made.network.trunk.state_dict().items() if not torch.equal(v, before[k])
    }
    assert changed == {k for k in before if before[k].dim() == 4}  # the convolutions


def test_the_length_of_the_networks_gradient_is_bounded_that_of_the_loss_not() -> None:
    made = module_of(training(gradient_clip_norm=1e-3))
    made.train()
    before = {part: weights(made, part) for part in RATES}
    made.step(*batch())
    steps = {part: (weights(made, part) - before[part]) / RATES[part] for part in RATES}
    length = torch.cat([steps["trunk"], steps["embedder"]]).norm()
    assert float(length) == pytest.approx(1e-3, rel=1e-2)
    assert float(steps["loss"].norm()) > 1e-2


def test_a_part_of_the_loss_can_have_a_rate_of_its_own() -> None:
    hist = "pml_extensions.losses.HISTLoss"
    own = {**RATES, "loss.hypergraph_parameters": 0.03}
    made = module_of(training(), settings(hist, learning_rates=own))
    groups = made.optimizers["loss"].param_groups
    assert [group["lr"] for group in groups] == [0.4, 0.03]
    assert len(groups[0]["params"]) == 2  # means and log-variances
    assert sum(len(g["params"]) for g in groups) == len(list(made.loss.parameters()))
    made.enter_second_phase(FilledSecondPhase({}, {}, lr_factor=0.5, loss_lr_factor=0.5))
    assert [group["lr"] for group in groups] == pytest.approx([0.2, 0.015])
    with pytest.raises(UsageError, match=r"loss_parts names 'nothing', but NormalizedSoftmaxLoss"):
        module_of(training(), settings(learning_rates={**RATES, "loss.nothing": 0.1}))


# -- fold runs ---------------------------------------------------------------------------------


@pytest.fixture
def sets(make_images: Callable[..., ImageSet]) -> tuple[ImageSet, ImageSet]:
    whole = make_images(12)
    return whole.subset(range(8)), whole.subset(range(8, 12))


def test_a_second_phase_at_a_fixed_epoch_goes_on_from_the_latest_weights(
    sets: tuple[ImageSet, ImageSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([0.1, 0.9, 0.2, 0.3, 0.4])  # epochs 0, 2, 4 of the first phase; 6, 8
    monkeypatch.setattr(
        "reality_check.training.trainer.evaluate",
        lambda *_, **__: dict.fromkeys(
            ("mean_average_precision_at_r", "r_precision", "precision_at_1"), next(values)
        ),
    )
    monkeypatch.setattr(Trainer, "_evaluate_untrained", lambda self: self._measure(self.network))
    how = training(max_epochs=8, second_phase_epochs=4)
    run = Trainer(task(settings(second=True), how), *sets, tmp_path, CPU)
    states = []
    begin = Trainer._begin_second_phase

    def spied(self: Trainer) -> None:
        states.append({k: v.clone() for k, v in self.network.state_dict().items()})
        begin(self)
        assert all(torch.equal(v, states[0][k]) for k, v in self.network.state_dict().items())

    monkeypatch.setattr(Trainer, "_begin_second_phase", spied)
    result = run.run()
    assert len(states) == 1
    assert [row["phase"] for row in result.curve] == [1, 1, 2, 2]
    assert [row["epoch"] for row in result.curve] == [2, 4, 6, 8]
    # The best of the second phase, though the first one had a better epoch.
    assert (result.value, result.epoch, result.follow_up_epochs) == (0.4, 8, 4)


# -- campaigns ---------------------------------------------------------------------------------


def experiment(**changes: Any) -> Experiment:
    sgd = {"name": "SGD", "lr": 0.05}
    protocol = {
        "base": "as_published",
        "split": {"test_classes": "half"},
        "training": {
            "batch_size": 4,
            "iterations_per_epoch": 1,
            "max_epochs": 4,
            "evaluate_every": 2,
            "second_phase_epochs": 2,
            "embedding_size": 4,
            "optimizers": {"trunk": sgd, "embedder": sgd, "loss": sgd},
            "augmentation": {"crop_size": 16},
        },
        "reproductions": 2,
    }
    protocol = {**protocol, **changes.pop("protocol", {})}
    two = {"arguments": {"alpha": 4}, "lr_factor": 0.1}
    return compose(
        {
            "name": "tiny",
            "dataset": "glyphs",
            "model": {"base": "conv4", "arguments": {"width": 4}},
            "protocol": protocol,
            "methods": [
                {
                    "name": "heated",
                    "loss": "HeatedUpSoftmaxLoss",
                    "samples_per_class": None,
                    "phase2": two,
                },
                {
                    "name": "wide",
                    "loss": SOFTMAX,
                    "samples_per_class": 1,
                    "model": {"arguments": {"width": 6}},
                    "training": {"embedding_size": 6, "second_phase_epochs": None},
                },
            ],
            "published_results": {
                "paper": "000_sgsl",
                "item": "Table 1",
                "notes": ["An erratum."],
                "gaps": ["Something is missing."],
                "results": {
                    "complete": {
                        "heated": {"recall_at_1": 72.0},
                        "wide": {"r_precision": [31, 0.2]},
                    }
                },
            },
            "device": "cpu",
            **changes,
        }
    )


Made = Callable[..., WorkedExperiment]


@pytest.fixture
def make(
    make_images: Callable[..., ImageSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Made:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def make_recorded(**changes: Any) -> WorkedExperiment:
        recorded = WorkedExperiment(experiment(**changes), tmp_path, make_images(16))
        engine = recorded.storage.engine
        engine.dispose()
        listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))
        return recorded

    return make_recorded


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, FoldTask, int, int | None]]:
    """Folder, task, and number of training and of selecting classes of every fold run."""
    seen: list[tuple[Path, FoldTask, int, int | None]] = []
    run = Trainer.run

    def spied(self: Trainer) -> Any:
        selecting = None if self.validation is None else self.validation.num_classes
        seen.append((self.folder, self.task, self.train_set.num_classes, selecting))
        return run(self)

    monkeypatch.setattr(Trainer, "run", spied)
    return seen


def by_stage(tasks: list[Any], method: str, stage: str) -> list[Any]:
    return [entry for entry in tasks if entry[0].parts[-4:-2] == (method, stage)]


def test_by_default_validation_classes_choose_the_epochs_of_networks_on_all_classes(
    make: Made, tasks: list[Any]
) -> None:
    recorded = make()
    assert recorded.experiment.protocol.stages == ("search", "final")
    recorded.work()
    assert recorded.is_complete()
    assert len(tasks) == count_trainings(recorded.experiment) == 2 * (1 + 2)
    for method in recorded.experiment.methods:
        ((_, search, train, validation),) = by_stage(tasks, method.name, "search")
        assert (train, validation, search.fixed_epochs) == (4, 4, None)
        study = next(u for u in recorded.states().ready() if u.method == method.name)
        (trial,) = study.complete.values()
        (total,), (second,) = trial.fold_epochs, trial.follow_up_epochs
        runs = by_stage(tasks, method.name, "final")
        assert len(runs) == 2
        for _, complete, train, validation in runs:
            assert (train, validation) == (8, None)
            assert complete.fixed_epochs == (total - second, second)
    assert {done.selects_on for _, done, *_ in tasks} == {"validation"}, "no test class"
    # Each method trains what is its own.
    sizes = {"heated": (4, 4, None), "wide": (6, 6, 1)}
    for folder, done, *_ in tasks:
        width, size, each = sizes[folder.parts[-4]]
        assert done.model.arguments == {"width": width}
        assert (done.embedding_size, done.training.embedding_size) == (size, size)
        assert done.settings.samples_per_class == each


def test_the_last_epoch_needs_no_validation(make: Made, tasks: list[Any]) -> None:
    recorded = make(protocol={"selects_on": "last"})
    recorded.work()
    assert recorded.is_complete()
    assert len(tasks) == count_trainings(recorded.experiment) == 4
    epochs = {folder.parts[-4]: done.fixed_epochs for folder, done, *_ in tasks}
    assert epochs == {"heated": (2, 2), "wide": (4, 0)}
    assert all((train, validation) == (8, None) for *_, train, validation in tasks)


def test_test_classes_select_only_where_that_is_asked_for_by_name(
    make: Made, tasks: list[Any]
) -> None:
    recorded = make(protocol={"selects_on": "test"})
    recorded.work()
    assert {done.selects_on for _, done, *_ in tasks} == {"test"}
    assert all((train, selecting) == (8, 8) for *_, train, selecting in tasks)
    results = collect(recorded)
    data = recorded.prepared.dataset
    scored = {
        (row.method, row.reproduction): row.value
        for row in results.rows
        if row.metric == SELECTS_ON_TEST
    }
    assert len(scored) == len(tasks) == 4
    for folder, done, *_ in list(tasks):
        finished = Trainer(done, data.subset(range(8)), data.subset(range(8, 16)), folder, CPU)
        curve = finished.run().curve
        last = [row for row in curve if row["epoch"] > 0 and row["phase"] == curve[-1]["phase"]]
        best = max(row[SELECTS_ON_TEST] for row in last)
        assert scored[folder.parts[-4], int(folder.parts[-2])] == pytest.approx(best)
    assert results.name == "tiny (epochs selected on the test classes)"
    (serious,) = [d for d in results.deviations if d.serious]
    assert serious.topic == "selection on the test classes"


# -- reports -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("selects_on", ["validation", "last", "test"])
def test_the_report_shows_what_was_published_beside_what_was_measured(
    make: Made, tmp_path: Path, selects_on: str
) -> None:
    recorded = make(protocol={"selects_on": selects_on})
    recorded.work()
    results = collect(recorded)
    assert results.finished
    write_report(results, tmp_path / "report")
    files = {n: (tmp_path / "report" / n).read_text() for n in ("report.md", "report.html")}
    for name, text in files.items():
        assert "72" in text, name
        assert "31.0 ± 0.2" in text, name
        assert ("selected on the test classes" in text) == (selects_on == "test"), name
    markdown = files["report.md"]
    assert "An erratum." in markdown
    assert "Something is missing." in markdown
    assert "Stop-Gradient Softmax Loss for Deep Metric Learning (AAAI 2023), Table 1" in markdown
    measured = [
        row.value for row in results.rows if (row.method, row.metric) == ("heated", SELECTS_ON_TEST)
    ]
    mean = 100 * sum(measured) / 2
    line = next(x for x in markdown.splitlines() if x.startswith("| heated | complete | measured"))
    assert f"| {mean:.2f} ±" in line
    assert line.endswith("| 2 |")
    apart = next(
        x for x in markdown.splitlines() if x.startswith("| heated | complete | difference")
    )
    assert f"{mean - 72:+.2f}".replace("-", "−") in apart


def test_an_unfinished_run_says_what_is_missing(make: Made) -> None:
    found = {d.topic: d.text for d in collect(make()).deviations}
    assert found["unfinished"] == "Not finished: heated, wide (search 0 of 1, final 0 of 2)."


def test_what_differs_from_the_paper_and_between_methods_is_in_the_box() -> None:
    found = find_deviations(experiment(), [], True)
    topics = {d.topic: d for d in found}
    assert topics["not as in the paper"].text == "Something is missing."
    assert "wide" in topics["models"].text
    assert "wide" in topics["training"].text
    assert not any(d.serious for d in found)
    quick = {"name": "quick", "dataset": "glyphs", "model": "conv4", "protocol": "quick_one_search"}
    method = {"base": "quick/hist", "model": {"arguments": {"width": 6}}}
    unfair = find_deviations(compose({**quick, "methods": [method, "quick/contrastive"]}), [], True)
    assert [d.topic for d in unfair if d.serious] == ["models"]


def test_rates_of_parts_are_filled_in() -> None:
    method = {
        "base": "hist",
        "learning_rates": {"loss": 0.1, "loss_parts": {"hypergraph_parameters": 6e-4}},
        "arguments": {"tau": 32, "alpha": 1.1},
        "training": {},
    }
    made = experiment(methods=[method], published_results=None)
    filled = fill_method(made.methods[0], made.protocol, {})
    assert filled.learning_rates["loss"] == 0.1
    assert filled.learning_rates["loss.hypergraph_parameters"] == 6e-4
