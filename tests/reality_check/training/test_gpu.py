"""Whole fold runs on a GPU: precisions, checkpoints, too little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_cuda import simulated_cuda
from support.gpu_folds import fold_run

from reality_check.config.metrics import METRICS
from reality_check.evaluation.scoring import Diverged
from reality_check.training.fold import FoldResult
from reality_check.utils import checkpoints

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("autocast", ["bf16", "fp16"])
def test_it_learns_in_every_precision(tmp_path: Path, autocast: str) -> None:
    result = fold_run(
        tmp_path, "cuda", max_epochs=4, iterations_per_epoch=5, autocast=autocast
    ).run()
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
    for on_gpu, on_cpu in zip(found["cuda"].curve, found["cpu"].curve, strict=True):
        for metric in METRICS:
            assert on_gpu[metric] == pytest.approx(on_cpu[metric], abs=0.02), metric


@pytest.mark.usefixtures("simulated_gpu")
def test_it_trains_on_another_than_the_first_gpu(tmp_path: Path) -> None:
    """Samples, labels, network and loss on the GPU that was asked for, as on the first."""
    with simulated_cuda(gpus=2):
        expected = fold_run(tmp_path / "first", "cuda:0", max_epochs=1).run().curve[-1]["loss"]
        run = fold_run(tmp_path / "second", "cuda:1", max_epochs=1)
        assert run.run().curve[-1]["loss"] == pytest.approx(expected, rel=1e-5)
        tensors = [*run.network.parameters(), *run.module.loss.parameters(), run.batches.labels]
        assert {tensor.device for tensor in tensors} == {torch.device("cuda:1")}


class Killed(Exception):
    pass


def killed(folder: Path, device: str, **options: Any) -> None:
    """Begin a fold run that ends after its second epoch."""

    def kill(position: dict[str, object]) -> None:
        if position["epoch"] == 2:
            raise Killed

    run = fold_run(folder, device, **options)
    run.on_progress = kill
    with pytest.raises(Killed):
        run.run()


def test_a_run_that_goes_on_draws_what_it_would_have_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    killed(tmp_path, "cuda", dropout=0.3)
    torch.manual_seed(5)
    found = fold_run(tmp_path, "cuda", dropout=0.3).run().curve[-1]["loss"]
    whole = fold_run(tmp_path / "whole", "cuda", dropout=0.3).run().curve[-1]["loss"]
    assert found == pytest.approx(whole, rel=1e-3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FoldResult:
    """A run on the CPU that nothing interrupts."""
    return fold_run(tmp_path_factory.mktemp("whole"), "cpu").run()


@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_goes_on_from_its_checkpoint_elsewhere(
    tmp_path: Path, first: str, second: str, whole: FoldResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path, first)
    if second == "cpu":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    again = fold_run(tmp_path, second)
    result = again.run()
    assert result.epochs_spent == 3
    curve = result.curve
    assert [row["epoch"] for row in curve] == [-1, 0, 1, 2, 3]
    assert curve[-1]["loss"] == pytest.approx(whole.curve[-1]["loss"], rel=0.1)
    assert {p.device.type for p in again.network.parameters()} == {second}
    for optimizer in again.module.optimizers.values():
        steps = [state["step"] for state in optimizer.state.values()]
        assert {step.device.type for step in steps} == {"cpu"}, "each step would wait for the GPU"


def test_all_that_was_learned_is_restored(tmp_path: Path) -> None:
    """The scale of float16 too: else the first steps of a run that continues are lost."""
    killed(tmp_path, "cuda", autocast="fp16")
    trainer = fold_run(tmp_path, "cuda", autocast="fp16")
    saved: Any = trainer.checkpoints.load()
    trainer.build()
    assert trainer.module.state_dict()["scaler"] != saved["scaler"]
    trainer.progress.load_state_dict(saved["progress"])
    trainer._restore(saved)
    found = trainer.module.state_dict()
    for part in found:
        torch.testing.assert_close(found[part], saved[part], check_device=False)


def test_a_loss_that_diverges_is_seen(tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        fold_run(tmp_path, "cuda", lr=1e30).run()
