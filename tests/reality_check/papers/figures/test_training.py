"""The figures' training loop: kept, continued, damaged, divergent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pml_extensions.losses import HeatedUpSoftmaxLoss
from reality_check.papers.figures import Settings, _training
from reality_check.papers.figures._images import Images
from reality_check.papers.figures._training import Phase, Training, train
from reality_check.utils import checkpoints
from reality_check.utils.errors import WorkFailed


class Tiny(nn.Sequential):
    """A linear network with a dropout, so that every step draws random numbers."""

    def __init__(self, embedding_size: int) -> None:
        super().__init__(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, embedding_size))


class Exploding(nn.Module):
    """A loss that is NaN from its fifth call on."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor
        self.weight = nn.Parameter(torch.ones(embedding_size))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.calls += 1
        value = (embeddings * self.weight).square().mean()
        return value / 0 * 0 if self.calls >= 5 else value


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


def settings_of(folder: Path, told: list[str] | None = None) -> Settings:
    return Settings("quick", folder, [].append if told is None else told.append)


def state(trained: _training.Trained) -> dict[str, Tensor]:
    return {**trained.network.state_dict(), **trained.loss.state_dict()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_training_is_kept_and_not_repeated(
    images: Images, training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    first = train(training, images, settings_of(tmp_path, told))
    assert told == [f"tiny: epoch 4 of 4, loss {told[0].rpartition(' ')[2]}"]
    monkeypatch.setattr(_training._Run, "epoch", lambda self: pytest.fail("trained again"))
    again = train(training, images, settings_of(tmp_path))
    assert same(state(first), state(again))


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
    first = train(training, images, settings_of(tmp_path))
    other = train(replace(training, **change), images, settings_of(tmp_path))  # type: ignore[arg-type]
    assert len(list((tmp_path / "runs").glob("*.pt"))) == 2
    assert not same(state(first), state(other))


def test_other_images_are_another_training(
    images: Images, training: Training, tmp_path: Path
) -> None:
    train(training, images, settings_of(tmp_path))
    train(training, images.first(30), settings_of(tmp_path))
    assert len(list((tmp_path / "runs").glob("*.pt"))) == 2


def test_the_title_is_no_setting(images: Images, training: Training, tmp_path: Path) -> None:
    train(training, images, settings_of(tmp_path))
    train(replace(training, title="renamed"), images, settings_of(tmp_path))
    assert len(list((tmp_path / "runs").glob("*.pt"))) == 1


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_stopped_training_goes_on_as_if_it_had_not_been(
    images: Images,
    training: Training,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_after: int,
) -> None:
    monkeypatch.setattr(_training, "CHECKPOINT_SECONDS", 0.0)
    whole = train(training, images, settings_of(tmp_path / "whole"))
    epoch = _training._Run.epoch

    def interrupted(run: _training._Run) -> None:
        if run.done == stop_after:
            raise KeyboardInterrupt
        epoch(run)

    monkeypatch.setattr(_training._Run, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(training, images, settings_of(tmp_path / "stopped"))
    assert len(list((tmp_path / "stopped" / "runs").glob("*.pt"))) == 1
    epochs: list[int] = []

    def counted(run: _training._Run) -> None:
        epochs.append(run.done)
        epoch(run)

    monkeypatch.setattr(_training._Run, "epoch", counted)
    resumed = train(training, images, settings_of(tmp_path / "stopped"))
    assert epochs == list(range(stop_after, 4))
    assert same(state(whole), state(resumed))


def test_the_second_phase_takes_its_values_and_rates(
    images: Images, training: Training, tmp_path: Path
) -> None:
    run = train(training, images, settings_of(tmp_path))
    assert run.loss.alpha == 4.0
    saved = checkpoints.load(next((tmp_path / "runs").glob("*.pt")))
    assert saved is not None
    assert [group["lr"] for group in saved["optimizer"]["param_groups"]] == [1e-3, 1e-2]


def test_a_damaged_file_is_trained_anew(images: Images, training: Training, tmp_path: Path) -> None:
    first = train(training, images, settings_of(tmp_path))
    (file,) = (tmp_path / "runs").glob("*.pt")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    told: list[str] = []
    again = train(training, images, settings_of(tmp_path, told))
    assert "checksum is wrong" in told[0]
    assert same(state(first), state(again))


def test_balanced_batches_hold_so_many_images_of_each_class(
    images: Images, training: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    forward = HeatedUpSoftmaxLoss.forward

    def spy(self: HeatedUpSoftmaxLoss, embeddings: Tensor, labels: Tensor) -> Tensor:
        seen.append(labels.tolist())
        return forward(self, embeddings, labels)

    monkeypatch.setattr(HeatedUpSoftmaxLoss, "forward", spy)
    train(replace(training, samples_per_class=5), images, settings_of(tmp_path))
    assert len(seen) == 4 * 4  # epochs, batches
    for labels in seen:
        assert sorted(labels.count(label) for label in set(labels)) == [5, 5]


def test_divergence_is_kept_where_it_is_watched(images: Images, tmp_path: Path) -> None:
    training = Training("boom", Tiny, Exploding, 2, (Phase(6),), batch_size=10)
    run = train(training, images, settings_of(tmp_path), measure=lambda network, loss: 1.0)
    assert run.diverged == 2  # four batches an epoch
    assert run.history == [1.0, 1.0]  # before the first epoch and after it
    again = train(training, images, settings_of(tmp_path), measure=lambda network, loss: 2.0)
    assert again.diverged == 2
    assert again.history == [1.0, 1.0]


def test_divergence_that_nobody_watches_is_an_error(images: Images, tmp_path: Path) -> None:
    training = Training("boom", Tiny, Exploding, 2, (Phase(6),), batch_size=10)
    with pytest.raises(WorkFailed, match="boom: the loss became infinite in epoch 2"):
        train(training, images, settings_of(tmp_path))


def test_the_callers_random_numbers_are_left_alone(
    images: Images, training: Training, tmp_path: Path
) -> None:
    before = torch.get_rng_state()
    train(training, images, settings_of(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
def test_float32_is_float32_on_a_gpu(images: Images, training: Training, tmp_path: Path) -> None:
    cudnn: Any = torch.backends.cudnn
    seen = []

    def look(module: nn.Module, given: Any) -> None:
        if isinstance(module, Tiny):
            seen.append((given[0].is_cuda, cudnn.conv.fp32_precision))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(look)
    before = cudnn.conv.fp32_precision
    cudnn.conv.fp32_precision = "tf32"
    try:
        train(training, images, settings_of(tmp_path)).embed(images)
        assert cudnn.conv.fp32_precision == "tf32", "of others nothing changes"
    finally:
        hook.remove()
        cudnn.conv.fp32_precision = before
    assert len(seen) == training.epochs * len(images) // training.batch_size + 1
    assert set(seen) == {(True, "ieee")}
