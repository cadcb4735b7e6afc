"""Damaged files of a fold run: what is sound is used, what is not is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data import ImageSet
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.methods import FilledMethod
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints

MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 4}, pooling="flatten")


class Killed(Exception):
    pass


Make = Callable[..., Trainer]


@pytest.fixture
def make(
    make_images: Callable[..., ImageSet], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Make:
    """Makes a fold run in a folder that is killed after so many epochs."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    train, validation = make_images(8), make_images(6, seed=1)

    def make_run(name: str, kill_after: int = 10**9, keep_model: bool = True) -> Trainer:
        rates = {"trunk": 0.01, "embedder": 0.02, "loss": 0.3}
        settings = FilledMethod("toy", "ProxyNCALoss", {}, None, 2, rates, 0.0, True)
        part = {"name": "Adam", "lr": 0.0}
        training = Training.model_validate(
            {
                "batch_size": 8,
                "iterations_per_epoch": 2,
                "max_epochs": 6,
                "evaluate_every": 1,
                "patience": None,
                "optimizers": {"trunk": part, "embedder": part, "loss": part},
            }
        )
        task = FoldTask(settings, MODEL, training, 4, 3, 4, None, keep_model)

        def kill(position: dict[str, Any]) -> None:
            if position["epoch"] >= kill_after:
                raise Killed

        device = torch.device("cpu")
        folder = tmp_path / name
        return Trainer(task, train, validation, folder, device, kill, None, checkpoint_seconds=0.0)

    return make_run


def killed(make: Make, name: str, after: int = 4) -> Path:
    run = make(name, after)
    with pytest.raises(Killed):
        run.run()
    return run.folder


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def outcome(result: FoldResult) -> tuple[object, ...]:
    """Everything but the wall time; a curve's None and NaN are compared by their text."""
    return (result.value, result.epoch, result.epochs_spent, repr(result.curve))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make("whole").run()
    folder = killed(make, "killed")
    names = {path.name for path in folder.glob("*.pt")}
    assert {"latest.pt", "latest-previous.pt"} <= names
    assert len(names) <= 4
    damage(folder / "latest.pt")
    epochs: list[int] = []
    run = make("killed")
    run.on_progress = lambda position: epochs.append(position["epoch"])
    again = run.run()
    assert epochs[0] == 4, "the checkpoint before was after epoch 3"
    assert outcome(again) == outcome(whole)
    assert "latest.pt is damaged" in caplog.text
    assert "continues from the checkpoint before it" in caplog.text
    kept = ["latest.pt", "model.pt", "proxies.pt"]
    assert sorted(path.name for path in folder.glob("*.pt")) == kept


def test_damaged_again_and_again_the_result_is_the_same(make: Make) -> None:
    whole = make("whole").run()
    for after in (2, 2, 3, 3, 4, 4, 5):
        folder = killed(make, "killed", after)
        damage(folder / "latest.pt")
    assert outcome(make("killed").run()) == outcome(whole)


def test_a_damaged_or_missing_best_state_is_not_used(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make("whole").run()
    for number, spoil in enumerate((damage, Path.unlink)):
        folder = killed(make, f"killed_{number}")
        bests = list(folder.glob("best-*.pt"))
        assert 1 <= len(bests) <= 2
        for path in bests:
            spoil(path)
        caplog.clear()
        assert outcome(make(f"killed_{number}").run()) == outcome(whole)
        assert "continues from the beginning" in caplog.text


def test_both_checkpoints_damaged_it_starts_anew(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make("whole").run()
    folder = killed(make, "killed")
    damage(folder / "latest.pt")
    damage(folder / "latest-previous.pt")
    assert outcome(make("killed").run()) == outcome(whole)
    assert "latest-previous.pt is damaged" in caplog.text
    assert "from the beginning" in caplog.text


@pytest.mark.parametrize("spoil", [damage, Path.unlink])
def test_a_damaged_model_of_a_finished_run_is_trained_again(
    make: Make, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    run = make("run")
    first = run.run()
    model = checkpoints.load(run.folder / "model.pt")
    assert model is not None
    spoil(run.folder / "model.pt")
    assert outcome(make("run").run()) == outcome(first)
    again = checkpoints.load(run.folder / "model.pt")
    assert again is not None
    assert all(torch.equal(model[key], again[key]) for key in model)
    assert "model.pt" in caplog.text


def test_leftovers_of_a_killed_write_are_removed(make: Make) -> None:
    folder = killed(make, "killed")
    (folder / ".latest.pt.1.aa.tmp").write_bytes(b"half")
    make("killed").run()
    assert list(folder.glob(".*")) == []


def test_a_full_disk_in_the_middle_loses_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make("whole").run()
    save, calls = checkpoints.save, 0

    def full(path: Path, state: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise OSError(28, "No space left on device")
        save(path, state)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                make("full").run()
    epochs: list[int] = []
    run = make("full")
    run.on_progress = lambda position: epochs.append(position["epoch"])
    assert outcome(run.run()) == outcome(whole)
    assert epochs[0] > 1, "it went on from a checkpoint"
