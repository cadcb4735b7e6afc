"""Fold runs on a GPU. Skipped without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reality_check.config import Model, Training
from reality_check.data import make_glyphs
from reality_check.evaluation.metrics import Diverged
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.methods import MethodSettings
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints

pytestmark = pytest.mark.gpu
MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 16}, pooling="flatten")


def fold_run(folder: Path, device: str, lr: float = 0.01, **changes: object) -> Trainer:
    data = make_glyphs(16, 8, 32, 0)
    part = {"name": "Adam", "lr": 0.0}
    training = Training.model_validate(
        {
            "batch_size": 16,
            "iterations_per_epoch": 10,
            "max_epochs": 3,
            "evaluate_every": 1,
            "freeze_batchnorm": False,
            "optimizers": {"trunk": part, "embedder": part, "loss": part},
            "augmentation": {"rotation": 10, "brightness": 0.2},
            **changes,
        }
    )
    settings = MethodSettings(
        name="m",
        loss="NormalizedSoftmaxLoss",
        arguments={},
        miner=None,
        samples_per_class=2,
        learning_rates=dict.fromkeys(("trunk", "embedder", "loss"), lr),
        loss_weight_decay=0.0,
        normalize_embeddings=True,
    )
    task = FoldTask(settings, MODEL, training, 16, network_seed=1, loss_seed=2)
    train, validation = data.subset(range(10)), data.subset(range(10, 16))
    place = torch.device(device)
    return Trainer(task, train, validation, folder, place, checkpoint_seconds=0)


@pytest.mark.parametrize("autocast", ["none", "bf16", "fp16"])
def test_it_learns_in_every_precision(tmp_path: Path, autocast: str) -> None:
    result = fold_run(tmp_path, "cuda", max_epochs=6, autocast=autocast).run()
    losses = [row["loss"] for row in result.curve[2:]]
    assert losses[-1] < losses[0]
    state = checkpoints.load(tmp_path / "model.pt")
    assert state is not None
    assert {t.dtype for t in state.values() if t.is_floating_point()} == {torch.float32}


def test_the_first_epoch_is_that_of_the_cpu(tmp_path: Path) -> None:
    """The same weights, batches and random numbers; sums in another order."""
    found: dict[str, FoldResult] = {
        device: fold_run(tmp_path / device, device, max_epochs=1).run()
        for device in ("cpu", "cuda")
    }
    losses = {device: result.curve[2]["loss"] for device, result in found.items()}
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=0.02)


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(position: dict[str, object]) -> None:
        if position["epoch"] == 2:
            raise Killed

    run = fold_run(tmp_path, "cuda")
    run.on_progress = kill
    with pytest.raises(Killed):
        run.run()
    again = fold_run(tmp_path, "cuda")
    assert again.run().epochs_spent == 3
    for optimizer in again.module.optimizers.values():
        steps = [state["step"] for state in optimizer.state.values()]
        assert {step.device.type for step in steps} == {"cpu"}, "each step would wait for the GPU"


def test_a_loss_that_diverges_is_seen(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        fold_run(tmp_path, "cuda", lr=1e30).run()
