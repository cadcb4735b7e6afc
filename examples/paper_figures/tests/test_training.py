"""The figures' training loop: kept, of two phases, divergent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from examples.paper_figures import training as loop
from examples.paper_figures.images import Images
from examples.paper_figures.training import Diverged, Phase, Settings, Trained, Training, train
from pml_extensions.losses import HeatedUpSoftmaxLoss


class Tiny(nn.Sequential):
    """A linear network with a dropout, so that every step draws random numbers."""

    def __init__(self, embedding_size: int) -> None:
        super().__init__(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, embedding_size))


class Exploding(nn.Module):
    """A loss that is NaN from its fifth call on."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.calls = 0
        self.weight = nn.Parameter(torch.ones(embedding_size))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.calls += 1
        value = (embeddings * self.weight).square().mean()
        return value * torch.nan if self.calls >= 5 else value


@pytest.fixture
def images() -> Images:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    pixels = torch.randint(0, 120, (40, 4, 4), generator=generator)
    pixels[:, 0] += 40 * labels[:, None]
    return Images("blocks", pixels.to(torch.uint8), labels)


@pytest.fixture
def training() -> Training:
    phases = (Phase(2, 1e-2), Phase(2, 1e-3, 1e-2, {"alpha": 4.0}))
    return Training("tiny", Tiny, HeatedUpSoftmaxLoss, 2, phases, batch_size=10)


def state(trained: Trained) -> dict[str, Tensor]:
    return {**trained.network.state_dict(), **trained.loss.state_dict()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_training_is_kept_and_not_repeated(
    images: Images, training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_state = torch.get_rng_state()
    first = train(training, images, Settings(folder=tmp_path))
    assert torch.equal(torch.get_rng_state(), random_state)
    monkeypatch.setattr(loop, "_train_epoch", lambda *arguments: pytest.fail("trained again"))
    renamed = replace(training, title="renamed")
    assert same(state(first), state(train(renamed, images, Settings(folder=tmp_path))))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"batch_size": 8},
        {"loss_arguments": {"alpha": 8.0}},
        {"phases": (Phase(2, 1e-2), Phase(2, 1e-3, 1e-2, {"alpha": 2.0}))},
        {"samples_per_class": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_settings_are_another_training(
    images: Images, training: Training, tmp_path: Path, change: dict[str, object]
) -> None:
    first = train(training, images, Settings(folder=tmp_path))
    other = train(replace(training, **change), images, Settings(folder=tmp_path))  # type: ignore[arg-type]
    assert not same(state(first), state(other))


def test_other_images_are_another_training(
    images: Images, training: Training, tmp_path: Path
) -> None:
    first = train(training, images, Settings(folder=tmp_path))
    assert not same(
        state(first), state(train(training, images.first(30), Settings(folder=tmp_path)))
    )


def test_the_second_phase_takes_its_values_and_rates(
    images: Images, training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[list[float]] = []
    step = torch.optim.Adam.step

    def spy(self: torch.optim.Adam) -> None:
        rates.append([group["lr"] for group in self.param_groups])
        step(self)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    assert train(training, images, Settings(folder=tmp_path)).loss.alpha == 4.0
    assert rates == [[1e-2, 1e-2]] * 8 + [[1e-3, 1e-2]] * 8


def test_balanced_batches_hold_so_many_images_of_each_class(
    images: Images, training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    forward = HeatedUpSoftmaxLoss.forward

    def spy(self: HeatedUpSoftmaxLoss, embeddings: Tensor, labels: Tensor) -> Tensor:
        seen.append(labels.tolist())
        return forward(self, embeddings, labels)

    monkeypatch.setattr(HeatedUpSoftmaxLoss, "forward", spy)
    train(replace(training, samples_per_class=5), images, Settings(folder=tmp_path))
    assert len(seen) == 4 * 4  # epochs, batches
    for labels in seen:
        assert sorted(labels.count(label) for label in set(labels)) == [5, 5]


def test_divergence_is_kept_where_it_is_watched(images: Images, tmp_path: Path) -> None:
    training = Training("boom", Tiny, Exploding, 2, (Phase(6),), batch_size=10)
    measured = iter((1.0, 2.0))
    for _ in range(2):  # trained, read
        run = train(training, images, Settings(folder=tmp_path), lambda *_: next(measured))
        assert run.diverged == 2  # four batches an epoch
        assert run.history == [1.0, 2.0]  # before the first epoch and after it
    with pytest.raises(Diverged, match="boom: the loss became infinite in epoch 2"):
        train(training, images, Settings(folder=tmp_path))
