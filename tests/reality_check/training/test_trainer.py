from __future__ import annotations

import dataclasses
import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_triplets_indices
from support import training_modules
from torch import Tensor, nn

from reality_check.config.method import BeforeTraining, ValueSchedule
from reality_check.config.metrics import PRIMARY
from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data import ImageSet
from reality_check.evaluation.scoring import Diverged
from reality_check.models.network import build_network
from reality_check.training.first_values import fit_first_values
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.methods import FilledMethod, FilledSecondPhase
from reality_check.training.module import TrainingModule
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError
from reality_check.utils.lease import LeaseLost

CPU = torch.device("cpu")
MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 4}, pooling="flatten")
SECOND = FilledSecondPhase({}, {}, lr_factor=0.5, loss_lr_factor=0.25)


# -- losses of the tests -----------------------------------------------------------------------


class Proxies(nn.Module):
    """Cross-entropy to proxies, with a plain attribute as many losses of PML have one."""

    seen: ClassVar[list[float]] = []

    def __init__(self, num_classes: int, embedding_size: int, scale: float = 4.0) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(num_classes, embedding_size))
        self.scale = scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        Proxies.seen.append(self.scale)
        return nn.functional.cross_entropy(self.scale * embeddings @ self.weights.T, labels)


class Chance(Proxies):
    """Draws from every global generator."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        noise = torch.randn_like(embeddings) * np.random.normal() * random.random()
        return super().forward(embeddings + 0.1 * noise, labels)


class Breaks(Proxies):
    """Returns something else from the third step on."""

    value: ClassVar[float] = float("nan")
    steps: ClassVar[int] = 0

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        Breaks.steps += 1
        factor = Breaks.value if Breaks.steps >= 3 else 1.0
        return super().forward(embeddings, labels) * factor


class Steep(Proxies):
    """Gradients of about a million everywhere."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return 1e6 * (embeddings.sum() + self.weights.sum())


class Idle(Proxies):
    """Has parameters that it does not use."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.scale * embeddings, labels % embeddings.shape[1])


class Remembers(Proxies):
    """Keeps state in plain attributes of many kinds, and hands over a generator."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size)
        self.steps, self.average = 0, np.float64(0.0)
        self.past: list[Tensor] = []
        self.register_buffer("center", torch.zeros(embedding_size), persistent=False)
        self.generator = torch.Generator().manual_seed(5)

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.steps += 1
        self.average = 0.9 * self.average + 0.1 * np.mean(embeddings.tolist())
        self.center = 0.5 * self.center + 0.5 * embeddings.detach().mean(dim=0)
        self.past = [*self.past, embeddings.detach().mean(dim=0)][-3:]
        self.classes = {"last": labels}
        shift = self.center + sum(self.past) + self.steps + float(self.average)
        shift = shift + torch.rand(embeddings.shape[1], generator=self.generator)
        return super().forward(embeddings + shift, labels)


class TakesTurns(nn.Module):
    """A miner that takes every third triplet, each time others."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.tensor(0))

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        self.turn += 1
        start = int(self.turn) % 3
        return tuple(index[start::3] for index in get_all_triplets_indices(labels))


class Types(Proxies):
    """Notes the types that reach a loss."""

    dtypes: ClassVar[set[torch.dtype]] = set()

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        Types.dtypes |= {embeddings.dtype, self.weights.dtype}
        return super().forward(embeddings, labels)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses above can be named in settings as ``toys.Proxies`` and so on."""
    module = ModuleType("toys")
    vars(module).update({name: kind for name, kind in globals().items() if isinstance(kind, type)})
    monkeypatch.setitem(sys.modules, "toys", module)
    Proxies.seen, Breaks.steps, Types.dtypes = [], 0, set()


# -- tasks and runs ----------------------------------------------------------------------------


def settings(loss: str = "toys.Proxies", **changes: Any) -> FilledMethod:
    rates = {"trunk": 0.01, "embedder": 0.02, "loss": 0.03}
    return training_modules.settings(loss, **{"learning_rates": rates, **changes})


def training(optimizer: str = "Adam", **changes: Any) -> Training:
    part = {"name": optimizer, "lr": 0.0}
    values = {
        "batch_size": 8,
        "iterations_per_epoch": 2,
        "max_epochs": 6,
        "evaluate_every": 2,
        "patience": None,
        "freeze_batchnorm": False,
        "optimizers": {"trunk": part, "embedder": part, "loss": part},
        "augmentation": {"rotation": 20, "translation": 0.1},
    }
    return Training.model_validate({**values, **changes})


def task(method: FilledMethod, how: Training, **changes: Any) -> FoldTask:
    values = {"model": MODEL, "embedding_size": 4, "network_seed": 1, "loss_seed": 2}
    return FoldTask(settings=method, training=how, **{**values, **changes})


@pytest.fixture
def sets(make_images: Callable[..., ImageSet]) -> tuple[ImageSet, ImageSet]:
    """Eight training and four validation classes."""
    whole = make_images(12)
    return whole.subset(range(8)), whole.subset(range(8, 12))


Sets = tuple[ImageSet, ImageSet]


def fold_run(
    what: FoldTask, sets: Sets, folder: Path, on_progress: Callable[..., None] = lambda _: None
) -> Trainer:
    validation = sets[1] if what.fixed_epochs is None else None
    return Trainer(what, sets[0], validation, folder, CPU, on_progress, checkpoint_seconds=0)


def weights(folder: Path) -> dict[str, Tensor]:
    state = checkpoints.load(folder / "model.pt")
    assert state is not None
    return state


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def outcome(result: FoldResult) -> tuple[Any, ...]:
    """Everything but the wall time; a curve's None and NaN are compared by their text."""
    rest = (result.value, result.epoch, result.follow_up_epochs, result.epochs_spent)
    return (*rest, repr(result.curve))


def script(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> list[dict[str, Tensor]]:
    """Evaluations give these values in turn (first epoch -1); returns the weights at each."""
    remaining, snapshots = iter(values), []

    def measure(self: Trainer, forward: Any) -> dict[str, float]:
        state = self.network.state_dict()
        snapshots.append({key: value.clone() for key, value in state.items()})
        return {PRIMARY: next(remaining)}

    monkeypatch.setattr(Trainer, "_measure", measure)
    return snapshots


# -- early stopping and the best weights -------------------------------------------------------

#: protocol.md, section 2; first the trunk without embedder (epoch -1), which never counts.
GOLDEN = [0.99, 0.30, 0.35, 0.36, 0.355, 0.354, 0.353, 0.35, 0.34]


def test_the_metric_that_is_asked_for_chooses_the_epoch(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling, rising = iter(range(90, 0, -10)), iter(range(10, 90, 10))

    def evaluate(*_: Any, **__: Any) -> dict[str, float]:
        return {PRIMARY: next(falling) / 100, "recall_at_2": next(rising) / 100}

    monkeypatch.setattr("reality_check.training.trainer.evaluate", evaluate)
    how = training(evaluate_every=1, max_epochs=3, patience=None)
    chosen = dataclasses.replace(task(settings(), how), selects_by="recall_at_2")
    assert chosen.fingerprint() != task(settings(), how).fingerprint()
    result = fold_run(chosen, sets, tmp_path).run()
    assert (result.epoch, result.value) == (3, 0.5)


def test_the_golden_trace_through_a_fold_run(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = script(monkeypatch, GOLDEN)
    how = training(max_epochs=1000, patience=9, iterations_per_epoch=1)
    result = fold_run(task(settings(), how), sets, tmp_path).run()
    assert (result.value, result.epoch, result.epochs_spent) == (0.36, 4, 14)
    assert [row["epoch"] for row in result.curve] == [-1, 0, 2, 4, 6, 8, 10, 12, 14]
    assert same(weights(tmp_path), snapshots[3])
    assert not same(weights(tmp_path), snapshots[-1])


def test_training_learns_something(tmp_path: Path, sets: Sets) -> None:
    how = training(max_epochs=4, iterations_per_epoch=20, evaluate_every=1, augmentation={})
    model = MODEL.model_copy(update={"arguments": {"width": 16}})
    result = fold_run(task(settings(), how, model=model), sets, tmp_path).run()
    losses = [row["loss"] for row in result.curve[2:]]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 < np.log(8)


# -- stopped and resumed -----------------------------------------------------------------------


class Killed(Exception):
    pass


CASES: dict[str, tuple[FilledMethod, dict[str, Any]]] = {
    "one phase": (settings(), {}),
    "two phases": (settings(second_phase=SECOND), {"patience": 1, "max_epochs": 8}),
    "plain attribute changed": (
        settings(second_phase=FilledSecondPhase({"scale": 9.0}, {}, 0.5, 0.25)),
        {"max_epochs": 8},
    ),
    "set_phase": (
        settings(
            "WarpedSoftmaxLoss",
            arguments={"alpha": 8.0, "k1": 0.9, "k2": 1.1},
            normalize_embeddings=False,
            second_phase=FilledSecondPhase({"k1": 0.5}, {"alpha": 0.3}, 0.5, 0.25),
        ),
        {"max_epochs": 8},
    ),
    "loss with its own chance": (settings("toys.Chance"), {}),
    "miner": (
        settings("MultiSimilarityLoss", miner={"class": "MultiSimilarityMiner", "epsilon": 0.5}),
        {},
    ),
    "random miner": (
        settings("TripletMarginLoss", miner={"class": "BatchEasyHardMiner"}),
        {"freeze_batchnorm": True},
    ),
    "miner with a buffer": (
        settings("TripletMarginLoss", miner={"class": "toys.TakesTurns"}),
        {"freeze_batchnorm": True},
    ),
    "momentum, clipping, bf16": (
        settings(),
        {"optimizer": "RMSprop", "gradient_clip": 0.1, "autocast": "bf16"},
    ),
    "memory of past batches": (
        settings(
            "CrossBatchMemory",
            arguments={"loss": {"class": "ContrastiveLoss"}, "memory_size": 44},
            second_phase=SECOND,
        ),
        {"patience": 1, "max_epochs": 8},
    ),
    "state in plain attributes": (
        settings("toys.Remembers", second_phase=SECOND),
        {"patience": 3, "max_epochs": 8},
    ),
    "fixed epochs": (
        settings("toys.Chance", second_phase=SECOND),
        {"fixed_epochs": (3, 3)},
    ),
    "value that follows a schedule": (
        settings(
            schedules={
                "scale": ValueSchedule(kind="cosine", factor=0.25, epochs=4, per="iteration")
            },
            second_phase=SECOND,
        ),
        {"patience": 1, "max_epochs": 8},
    ),
    "rates that follow a schedule": (
        settings(second_phase=SECOND),
        {
            "schedule": {"kind": "cosine", "per": "iteration", "warmup_iterations": 5},
            "second_phase_epochs": 2,
            "freeze_trunk_epochs": 1,
        },
    ),
    "average of the weights": (
        settings(second_phase=SECOND),
        {"ema": 0.8, "patience": 1, "max_epochs": 8},
    ),
    "batches in parts": (
        settings("toys.Chance", second_phase=SECOND),
        {"sub_batch_size": 3, "freeze_batchnorm": True, "activation_checkpointing": True},
    ),
    "values fitted before": (
        settings(
            "HeatedUpSoftmaxLoss",
            arguments={"normalization": "bn"},
            before_training=BeforeTraining(batch_statistics=True, proxies="class_means"),
            schedules={"alpha": ValueSchedule(kind="step", every=2, factor=0.5)},
        ),
        {"freeze_batchnorm": False},
    ),
}


def case(name: str) -> FoldTask:
    method, changes = CASES[name]
    changes = dict(changes)
    fixed = changes.pop("fixed_epochs", None)
    return task(method, training(**changes), fixed_epochs=fixed)


def in_pieces(what: FoldTask, sets: Sets, folder: Path, on_progress: Callable[..., None]) -> int:
    """Run to the end, anew each time that it is killed; returns how often it was."""
    for kills in range(99):
        checkpoints.seed_everything(1234 + kills)  # another process has other states
        try:
            fold_run(what, sets, folder, on_progress).run()
            return kills
        except Killed:
            pass
    raise AssertionError("it is always killed at the same place")


#: Phases, early stopping and fixed epochs meet every epoch; what others add is in any checkpoint.
PHASES = {"two phases", "memory of past batches", "state in plain attributes", "fixed epochs"}


@pytest.mark.parametrize("name", CASES)
def test_killed_after_an_epoch_the_result_is_bit_identical(
    tmp_path: Path, sets: Sets, name: str
) -> None:
    """After each epoch, or after three; every second has a checkpoint."""
    what = case(name)
    told: list[dict[str, Any]] = []
    whole = fold_run(what, sets, tmp_path / "whole", told.append).run()
    assert len(told) >= 5
    lives = itertools.cycle((1, 2) if name in PHASES else (3,))
    left = next(lives)

    def kill(position: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if not left:
            left = next(lives)
            raise Killed

    kills = in_pieces(what, sets, tmp_path / "killed", kill)
    assert kills >= (5 if name in PHASES else 2)
    again = fold_run(what, sets, tmp_path / "killed").run()
    assert outcome(again) == outcome(whole)
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))


def test_the_second_phase_has_the_memory_of_the_best_weights(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, [0.0, 0.0, 0.1, 0.3, 0.2, 0.2, 0.25, 0.28, 0.1, 0.1])
    begun: list[tuple[int, bool]] = []
    apply = TrainingModule.enter_second_phase

    def spy(self: TrainingModule, second: FilledSecondPhase | None) -> None:
        begun.append((self.loss.queue_idx, self.loss.has_been_filled))
        apply(self, second)

    monkeypatch.setattr(TrainingModule, "enter_second_phase", spy)
    arguments = {"loss": {"class": "ContrastiveLoss"}, "memory_size": 44}
    method = settings("CrossBatchMemory", arguments=arguments, second_phase=SECOND)
    fold_run(
        task(method, training(evaluate_every=1, patience=1, max_epochs=40)), sets, tmp_path
    ).run()
    # The best epoch is the second; 4 of its batches of 8 are in the memory.
    assert begun == [(32, False)]


@pytest.mark.parametrize("name", ["one phase", "two phases", "fixed epochs"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_the_result_is_bit_identical(
    tmp_path: Path, sets: Sets, name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before or just after a checkpoint or model file is written, of each kind."""
    what = case(name)
    whole = fold_run(what, sets, tmp_path / "whole").run()
    save, folder = checkpoints.save, tmp_path / "killed"
    # With three writes, a run has passed any checkpoint, and with four its end.
    lives = itertools.cycle((1, 2, 3, 4))
    left, killed_at = next(lives), list[str]()

    def killing_save(path: Path, state: dict[str, Any]) -> None:
        nonlocal left
        left -= 1
        if left or after:
            save(path, state)
        if not left:
            left = next(lives)
            killed_at.append(path.stem.rstrip("0123456789"))
            raise Killed

    monkeypatch.setattr(checkpoints, "save", killing_save)
    in_pieces(what, sets, folder, lambda _: None)
    monkeypatch.setattr(checkpoints, "save", save)
    assert {"latest"} < set(killed_at), "and another kind"
    again = fold_run(what, sets, folder).run()
    assert outcome(again) == outcome(whole)
    assert same(weights(folder), weights(tmp_path / "whole"))


def test_a_finished_run_is_not_trained_again(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fold_run(case("one phase"), sets, tmp_path).run()

    def build(self: Trainer) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Trainer, "build", build)
    assert fold_run(case("one phase"), sets, tmp_path).run() == first
    kept = ["latest.pt", "model.pt", "proxies.pt"]
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == kept


def test_a_run_that_another_worker_took_over_leaves_the_folder_alone(
    tmp_path: Path, sets: Sets
) -> None:
    """A worker was paused after its third epoch; the other one has finished when it comes back."""
    what = task(settings(), training(max_epochs=5, patience=None))
    expected = fold_run(what, sets, tmp_path / "whole").run()
    folder = tmp_path / "shared"
    seen: dict[Path, bytes] = {}

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def take_over(position: dict[str, Any]) -> None:
        if position["epoch"] == 3:
            assert outcome(fold_run(what, sets, folder).run()) == outcome(expected)
            seen.update(files())

    def renew_lease() -> float:
        if seen:
            raise LeaseLost
        return math.inf

    with pytest.raises(LeaseLost):
        Trainer(what, *sets, folder, CPU, take_over, renew_lease=renew_lease).run()
    assert seen
    assert files() == seen
    with pytest.raises(LeaseLost):
        Trainer(what, *sets, folder, CPU, renew_lease=renew_lease).run()
    assert files() == seen


def test_a_search_trial_keeps_no_model(tmp_path: Path, sets: Sets) -> None:
    fold_run(task(settings(), training(), keep_model=False), sets, tmp_path).run()
    assert [path.name for path in tmp_path.glob("*.pt")] == ["latest.pt"]
    assert (tmp_path / "latest.pt").stat().st_size < 20_000


# -- seeds -------------------------------------------------------------------------------------


def test_equal_seeds_give_equal_runs_and_other_seeds_others(tmp_path: Path, sets: Sets) -> None:
    def run(name: str, **seeds: int) -> dict[str, Tensor]:
        fold_run(task(settings("toys.Chance"), training(), **seeds), sets, tmp_path / name).run()
        return weights(tmp_path / name)

    torch.manual_seed(7)
    one = run("one")
    torch.manual_seed(8)
    assert same(run("two"), one)
    assert not same(run("network", network_seed=11), one)
    assert not same(run("loss", loss_seed=11), one)


def test_methods_share_initial_weights_and_batches(tmp_path: Path, sets: Sets) -> None:
    runs = []
    for name, loss_seed in (("ContrastiveLoss", 2), ("toys.Proxies", 3)):
        run = fold_run(task(settings(name), training(), loss_seed=loss_seed), sets, tmp_path / name)
        run.build()
        runs.append(run)
    one, other = runs
    assert same(one.network.state_dict(), other.network.state_dict())
    taken = zip(one.batches.take(5), other.batches.take(5), strict=True)
    for (images, labels), (other_images, other_labels) in taken:
        assert torch.equal(images, other_images)
        assert torch.equal(labels, other_labels)


# -- phases ------------------------------------------------------------------------------------


def test_the_second_phase_starts_from_the_best_weights_of_the_first_and_has_a_best_of_its_own(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Epochs -1, 0, then 1, 2 (best), 3, 4; the second phase 5 to 8 (counted 3 to 6 of its weights)
    # never reaches the first one's best, but only its networks are the method's.
    snapshots = script(monkeypatch, [0.0, 0.0, 0.1, 0.3, 0.2, 0.2, 0.25, 0.28, 0.1, 0.1])
    begun: list[dict[str, Tensor]] = []
    moments: list[Any] = []
    apply = TrainingModule.enter_second_phase

    def spy(self: TrainingModule, second: FilledSecondPhase | None) -> None:
        begun.append({key: value.clone() for key, value in self.network.state_dict().items()})
        moments.append(self.optimizers["trunk"].state_dict()["state"][0]["step"].item())
        apply(self, second)

    monkeypatch.setattr(TrainingModule, "enter_second_phase", spy)
    how = training(evaluate_every=1, patience=1, max_epochs=40)
    run = fold_run(task(settings(second_phase=SECOND), how), sets, tmp_path)
    result = run.run()
    assert len(begun) == 1
    assert same(begun[0], snapshots[3])
    assert moments == [4], "the optimiser goes back to epoch 2 of 2 iterations as well"
    assert (result.value, result.epoch, result.follow_up_epochs) == (0.28, 4, 2)
    assert result.epochs_spent == 8
    assert [(row["phase"], row["epoch"], row["step"]) for row in result.curve] == [
        (1, -1, -1),
        (1, 0, 0),
        (1, 1, 1),
        (1, 2, 2),
        (1, 3, 3),
        (1, 4, 4),
        (2, 3, 5),
        (2, 4, 6),
        (2, 5, 7),
        (2, 6, 8),
    ]
    assert same(weights(tmp_path), snapshots[7])


def test_the_second_phase_changes_learning_rates_and_values_once(
    tmp_path: Path, sets: Sets
) -> None:
    second = FilledSecondPhase({}, {"scale": 0.5}, lr_factor=0.5, loss_lr_factor=0.25)
    how = training(evaluate_every=1, iterations_per_epoch=1, max_epochs=8)
    what = task(settings(arguments={"scale": 8.0}, second_phase=second), how)

    def kill(position: dict[str, Any]) -> None:
        raise Killed

    while True:  # resumed after every epoch, so eight times
        run = fold_run(what, sets, tmp_path, kill)
        try:
            run.run()
            break
        except Killed:
            rates = {name: o.param_groups[0]["lr"] for name, o in run.module.optimizers.items()}
    assert Proxies.seen == [8.0] * 6 + [4.0] * 2
    assert rates == {"trunk": 0.005, "embedder": 0.01, "loss": 0.0075}


@pytest.mark.parametrize("max_epochs", [2, 3, 6, 7])
def test_both_phases_together_stay_within_max_epochs(
    tmp_path: Path, sets: Sets, max_epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, [0.01 * step for step in range(40)])  # improves for ever
    how = training(max_epochs=max_epochs, evaluate_every=1, patience=9, iterations_per_epoch=1)
    result = fold_run(task(settings(second_phase=SECOND), how), sets, tmp_path).run()
    assert result.epochs_spent == max_epochs
    # A quarter of the epochs is the second phase's, rounded, but one at least.
    assert result.follow_up_epochs == {2: 1, 3: 1, 6: 2, 7: 2}[max_epochs]
    assert result.cut_short == (1, 2)


def test_an_early_first_phase_leaves_its_epochs_to_the_second(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, [0.0, 0.0, 0.5, 0.4, *(0.5 + 0.01 * step for step in range(1, 40))])
    how = training(max_epochs=8, evaluate_every=1, patience=0, iterations_per_epoch=1)
    result = fold_run(task(settings(second_phase=SECOND), how), sets, tmp_path).run()
    assert result.epochs_spent == 8
    assert (result.epoch, result.follow_up_epochs) == (7, 6)


# -- fixed epochs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "scales"),
    [((3, 2), [4.0] * 6 + [2.0] * 4), ((5, 0), [4.0] * 10), ((0, 2), [2.0] * 4)],
)
def test_a_run_with_fixed_epochs_trains_just_these(
    tmp_path: Path, sets: Sets, epochs: tuple[int, int], scales: list[float]
) -> None:
    second = FilledSecondPhase({}, {"scale": 0.5}, 1.0, 1.0)
    what = task(settings(second_phase=second), training(patience=0), fixed_epochs=epochs)
    result = fold_run(what, sets, tmp_path).run()
    assert (result.epoch, result.epochs_spent) == (sum(epochs), sum(epochs))
    assert result.follow_up_epochs == epochs[1]
    assert result.curve == ()
    assert Proxies.seen == scales
    untrained = build_network(MODEL, sets[0].image_shape, 4, 1).state_dict()
    assert not same(weights(tmp_path), untrained)


def test_a_run_has_either_validation_or_fixed_epochs(tmp_path: Path, sets: Sets) -> None:
    with pytest.raises(ValueError, match="either"):
        Trainer(task(settings(), training()), sets[0], None, tmp_path, CPU)
    with pytest.raises(ValueError, match="either"):
        Trainer(task(settings(), training(), fixed_epochs=(1, 0)), *sets, tmp_path, CPU)


# -- what a loss does wrong --------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_not_finite_ends_the_run_at_once(
    tmp_path: Path, sets: Sets, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Breaks, "value", value)
    with pytest.raises(Diverged, match=f"{value} in epoch 2"):
        fold_run(task(settings("toys.Breaks"), training()), sets, tmp_path).run()
    assert Breaks.steps == 3


def test_embeddings_that_are_not_finite_end_the_run(tmp_path: Path, sets: Sets) -> None:
    """An infinite weight gives NaN embeddings, though no loss was NaN."""
    method = settings("toys.Steep", learning_rates={"trunk": 1e38, "embedder": 1e38, "loss": 0.0})
    with pytest.raises(Diverged):
        fold_run(task(method, training("SGD")), sets, tmp_path).run()


def test_a_batch_of_more_classes_than_there_are_is_a_usage_error(
    tmp_path: Path, sets: Sets
) -> None:
    with pytest.raises(UsageError, match="16 classes"):
        fold_run(task(settings(), training(batch_size=32)), sets, tmp_path).run()


class Signs(torch.optim.Optimizer):
    """An optimiser of a user's own: steps of one length."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def test_an_optimiser_may_be_a_class_of_ones_own_and_any_of_torch(
    tmp_path: Path, sets: Sets
) -> None:
    own = {"name": f"{__name__}.Signs", "lr": 0.125}
    how = training(
        optimizers={"trunk": own, "embedder": {"name": "NAdam", "lr": 1e-3}, "loss": own}
    )
    fold = fold_run(task(settings(), how), sets, tmp_path)
    fold.build()
    kinds = {name: type(part).__name__ for name, part in fold.module.optimizers.items()}
    assert kinds["trunk"] == "Signs"
    assert kinds["embedder"] == "NAdam"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"name": "torch.optim.LBFGS", "lr": 1.0}, "several times a step"),
        ({"name": "Rprop", "lr": 0.1, "weight_decay": 0.1}, "has no weight_decay"),
        ({"name": "collections.OrderedDict", "lr": 0.1}, "must be a subclass of torch.optim"),
        ({"name": "Adam", "lr": 0.1, "arguments": {"betas": 3}}, "could not be built"),
    ],
)
def test_what_is_no_optimiser_is_a_usage_error(
    part: dict[str, Any], message: str, tmp_path: Path, sets: Sets
) -> None:
    how = training(optimizers={"trunk": part, "embedder": part, "loss": part})
    with pytest.raises(UsageError, match=rf"optimizers.trunk.name={part['name']}.*{message}"):
        fold_run(task(settings(), how), sets, tmp_path).build()


# -- how it trains -----------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batchnorm_keeps_its_statistics_but_trains_scale_and_shift(
    tmp_path: Path, sets: Sets, frozen: bool
) -> None:
    what = task(settings(), training(freeze_batchnorm=frozen))
    fold_run(what, sets, tmp_path).run()
    before = build_network(MODEL, sets[0].image_shape, 4, 1).state_dict()
    after = weights(tmp_path)
    statistics = [key for key in before if "running" in key or "num_batches" in key]
    norms = [index for index in range(12) if f"trunk.{index}.running_mean" in before]
    assert len(norms) == 4
    for key in statistics:
        assert torch.equal(before[key], after[key]) == frozen, key
    for index in norms:
        for name in ("weight", "bias"):
            key = f"trunk.{index}.{name}"
            assert not torch.equal(before[key], after[key]), key


def test_every_part_trains_with_its_own_learning_rate_and_decay(tmp_path: Path, sets: Sets) -> None:
    run = fold_run(task(settings(loss_weight_decay=0.5), training()), sets, tmp_path)
    run.build()
    groups = {name: o.param_groups for name, o in run.module.optimizers.items()}
    assert {name: len(group) for name, group in groups.items()} == dict.fromkeys(groups, 1)
    assert {name: group[0]["lr"] for name, group in groups.items()} == {
        "trunk": 0.01,
        "embedder": 0.02,
        "loss": 0.03,
    }
    assert {name: group[0]["weight_decay"] for name, group in groups.items()} == {
        "trunk": 0.0,
        "embedder": 0.0,
        "loss": 0.5,
    }
    owners = {
        "trunk": run.network.trunk,
        "embedder": run.network.embedder,
        "loss": run.loss,
    }
    for name, module in owners.items():
        given = {id(parameter) for parameter in groups[name][0]["params"]}
        assert given == {id(parameter) for parameter in module.parameters()}


@pytest.mark.parametrize("still", ["trunk", "embedder", "loss"])
def test_a_learning_rate_of_zero_freezes_its_part_only(
    tmp_path: Path, sets: Sets, still: str
) -> None:
    rates = {"trunk": 0.1, "embedder": 0.1, "loss": 0.1, still: 0.0}
    run = fold_run(task(settings(learning_rates=rates), training()), sets, tmp_path)
    run.build()
    parts = {"trunk": run.network.trunk, "embedder": run.network.embedder, "loss": run.loss}
    before = {name: [p.clone() for p in part.parameters()] for name, part in parts.items()}
    run._train_epoch()
    for name, part in parts.items():
        moved = any(
            not torch.equal(old, new)
            for old, new in zip(before[name], part.parameters(), strict=True)
        )
        assert moved == (name != still), name


def test_a_loss_without_parameters_has_no_optimiser(tmp_path: Path, sets: Sets) -> None:
    run = fold_run(task(settings("ContrastiveLoss"), training()), sets, tmp_path)
    run.build()
    assert set(run.module.optimizers) == {"trunk", "embedder"}


def test_bf16_autocast_keeps_parameters_and_the_loss_in_float32(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner: set[torch.dtype] = set()
    run = fold_run(task(settings("toys.Types"), training(autocast="bf16")), sets, tmp_path)
    run.build()
    run.network.embedder.register_forward_hook(lambda *args: inner.add(args[2].dtype))
    run._train_epoch()
    assert inner == {torch.bfloat16}
    assert Types.dtypes == {torch.float32}
    result = fold_run(task(settings("toys.Types"), training(autocast="bf16")), sets, tmp_path).run()
    assert 0 <= result.value <= 1
    assert {t.dtype for t in weights(tmp_path).values() if t.is_floating_point()} == {torch.float32}


def test_gradients_of_the_network_are_clipped_by_value_those_of_the_loss_not(
    tmp_path: Path, sets: Sets
) -> None:
    def largest_change(clip: float | None) -> dict[str, float]:
        rates = {"trunk": 1.0, "embedder": 1.0, "loss": 1.0}
        how = training("SGD", gradient_clip=clip, iterations_per_epoch=1)
        run = fold_run(task(settings("toys.Steep", learning_rates=rates), how), sets, tmp_path)
        run.build()
        parts = {"trunk": run.network.trunk, "embedder": run.network.embedder, "loss": run.loss}
        before = {name: [p.clone() for p in part.parameters()] for name, part in parts.items()}
        run._train_epoch()
        return {
            name: max(
                float((old - new).detach().abs().max())
                for old, new in zip(before[name], part.parameters(), strict=True)
            )
            for name, part in parts.items()
        }

    clipped = largest_change(0.25)
    assert clipped["trunk"] == pytest.approx(0.25, rel=1e-4)
    assert clipped["embedder"] == pytest.approx(0.25, rel=1e-4)
    assert clipped["loss"] == pytest.approx(1e6, rel=1e-4)
    assert min(largest_change(None).values()) > 1e3


@pytest.mark.parametrize("clip", [None, 0.1])
def test_scaled_gradients_leave_alone_what_the_loss_does_not_use(
    tmp_path: Path, sets: Sets, clip: float | None
) -> None:
    """As under fp16 on a GPU, whose scaler refuses optimisers without any gradient."""
    run = fold_run(task(settings("toys.Idle"), training(gradient_clip=clip)), sets, tmp_path)
    run.build()
    run.module.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    parts = (run.loss, run.network.embedder)
    before = [[p.detach().clone() for p in part.parameters()] for part in parts]
    run._train_epoch()
    kept = [
        all(map(torch.equal, old, part.parameters()))
        for old, part in zip(before, parts, strict=True)
    ]
    assert kept == [True, False]


def test_progress_counts_every_epoch_once(tmp_path: Path, sets: Sets) -> None:
    positions: list[dict[str, Any]] = []
    what = task(settings(second_phase=SECOND), training(patience=1))
    result = fold_run(what, sets, tmp_path, positions.append).run()
    assert [p["epoch"] for p in positions] == list(range(1, result.epochs_spent + 1))
    assert {p["max_epochs"] for p in positions} == {6}
    assert positions[-1]["best"] == result.value


def test_checkpoints_of_another_task_are_not_continued(tmp_path: Path, sets: Sets) -> None:
    """For example, the studies were deleted and the folders were not."""
    first = task(settings(), training())
    other = task(settings(learning_rates={"trunk": 0.1, "embedder": 0.1, "loss": 0.1}), training())
    fold_run(first, sets, tmp_path / "used").run()
    again = fold_run(other, sets, tmp_path / "used").run()
    alone = fold_run(other, sets, tmp_path / "new").run()
    assert outcome(again) == outcome(alone)
    assert same(weights(tmp_path / "used"), weights(tmp_path / "new"))


# -- values that follow a schedule -------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"kind": "constant"}, [4.0] * 12),
        ({"kind": "step", "every": 2, "factor": 0.5}, [4.0] * 4 + [2.0] * 4 + [1.0] * 4),
        ({"kind": "step", "at": [1], "factor": 2}, [4.0] * 2 + [8.0] * 10),
        ({"kind": "linear", "factor": 0.5, "epochs": 2}, [4, 4, 3, 3] + [2.0] * 8),
        (
            {"kind": "linear", "factor": 0.5, "epochs": 2, "per": "iteration"},
            [4, 3.5, 3, 2.5] + [2.0] * 8,
        ),
        (  # until max_epochs
            {"kind": "cosine", "factor": 0.25, "per": "iteration"},
            [1 + 3 * (1 + math.cos(math.pi * i / 12)) / 2 for i in range(12)],
        ),
    ],
)
def test_a_loss_trains_with_the_values_of_its_schedule(
    tmp_path: Path, sets: Sets, schedule: dict[str, Any], expected: list[float]
) -> None:
    Proxies.seen.clear()
    method = settings(schedules={"scale": ValueSchedule.model_validate(schedule)})
    fold_run(task(method, training(max_epochs=6)), sets, tmp_path).run()
    assert Proxies.seen == pytest.approx(expected)


def test_in_the_second_phase_a_schedule_goes_on_from_the_epoch_of_the_weights(
    tmp_path: Path, sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training with the lengths that this finds, the final one, sees the same values."""
    script(monkeypatch, [0.0, 0.0, 0.1, 0.3, 0.2, 0.2, 0.25, 0.28, 0.1, 0.1])
    Proxies.seen.clear()
    schedules = {"scale": ValueSchedule(kind="step", every=1, factor=0.5)}
    how = training(evaluate_every=1, patience=1, max_epochs=40)
    method = settings(second_phase=SECOND, schedules=schedules)
    result = fold_run(task(method, how), sets, tmp_path).run()
    by_epoch = Proxies.seen[::2]
    assert by_epoch == [4 / 2**n for n in (0, 1, 2, 3)] + [4 / 2**n for n in (2, 3, 4, 5)]
    first = result.epoch - result.follow_up_epochs
    Proxies.seen.clear()
    final = task(method, how, fixed_epochs=(first, result.follow_up_epochs))
    fold_run(final, sets, tmp_path / "final").run()
    assert Proxies.seen[::2] == [4 / 2**n for n in range(4)]


# -- before the first step ---------------------------------------------------------------------


def test_proxies_start_at_the_class_means_of_the_embeddings(tmp_path: Path, sets: Sets) -> None:
    method = settings(
        "NormalizedSoftmaxLoss", before_training=BeforeTraining(proxies="class_means")
    )
    method = dataclasses.replace(method, loss="pml_extensions.losses.NormalizedSoftmaxLoss")
    run = fold_run(task(method, training()), sets, tmp_path)
    run.build()
    before = run.loss.proxies.detach().clone()
    fit_first_values(run.task, run.module, run.train_set, run.batches)
    run.network.eval()
    with torch.no_grad():
        rows = np.arange(len(sets[0]))
        x = torch.cat([run.network(batch) for batch in run.batches.evaluation_batches(rows)])
    for label, proxy in enumerate(run.loss.proxies):
        mean = x[torch.from_numpy(sets[0].labels == label)].sum(dim=0)
        torch.testing.assert_close(proxy.detach(), mean / mean.norm())
    assert not torch.equal(before, run.loss.proxies)


def test_a_pass_before_training_fits_statistics_and_nothing_else(
    tmp_path: Path, sets: Sets
) -> None:
    wanted = BeforeTraining(batch_statistics=True)
    arguments = {"normalization": "bn"}
    method = settings("HeatedUpSoftmaxLoss", arguments=arguments, before_training=wanted)
    model = MODEL.changed({"neck": "heated_up_softmax"})
    run = fold_run(task(method, training(freeze_batchnorm=True), model=model), sets, tmp_path)
    run.build()
    states = {"network": run.network, "loss": run.loss}
    before = {k: {n: v.clone() for n, v in s.state_dict().items()} for k, s in states.items()}
    fit_first_values(run.task, run.module, run.train_set, run.batches)
    changed = {
        f"{key}.{name}"
        for key, part in states.items()
        for name, value in part.state_dict().items()
        if not torch.equal(value, before[key][name])
    }
    statistics = {"running_mean", "running_var"}
    neck = {f"network.embedder.neck.{name}" for name in (*statistics, "num_batches_tracked")}
    assert changed == neck | {f"loss.{name}" for name in statistics}
    passes = len(sets[0]) // run.task.training.batch_size
    assert int(run.network.embedder.neck.num_batches_tracked) == passes
