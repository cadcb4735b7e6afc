"""The average of the weights is what is evaluated, kept and scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.training_modules import DROPOUT, batches, module_of, task_of, training, weights
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from reality_check.data import make_glyphs
from reality_check.training.trainer import Trainer
from reality_check.utils import checkpoints

CPU = torch.device("cpu")


@pytest.mark.parametrize("options", [{}, {"freeze_trunk_epochs": 1, "freeze_batchnorm": False}])
def test_the_average_is_that_of_torch(options: dict[str, Any]) -> None:
    made = module_of(training(ema=0.7, **options))
    with pytest.raises(StopIteration), made.average.applied():
        raise StopIteration  # before the first step, and although an error occurs
    peer = AveragedModel(made.network, multi_avg_fn=get_ema_multi_avg_fn(0.7))
    for number, batch in enumerate(batches(5)):
        made.train()
        made.set_iteration(number, 2)
        made.step(*batch)
        peer.update_parameters(made.network)
    current = weights(made)
    with made.average.applied():
        averaged = dict(made.network.named_parameters())
        for name, value in peer.module.named_parameters():
            torch.testing.assert_close(averaged[name], value, rtol=1e-6, atol=1e-8)
        assert not torch.equal(averaged["trunk.0.weight"], current["network.trunk.0.weight"])
        for name, buffer in made.network.named_buffers():
            assert torch.equal(buffer, current[f"network.{name}"])
    assert all(torch.equal(value, current[name]) for name, value in weights(made).items())


def test_only_trained_parameters_are_copied() -> None:
    made = module_of(training(ema=0.7))
    for parameter in made.network.trunk.parameters():
        parameter.requires_grad_(False)
    made.step(*batches(1)[0])
    assert [*made.state_dict()["average"]] == ["embedder.weight", "embedder.bias"]


def test_a_parameter_of_two_names_is_averaged_once() -> None:
    made = module_of(training(ema=0.5), model=DROPOUT)
    made.network.twin = made.network.embedder  # type: ignore[assignment]
    for batch in batches(2):
        made.step(*batch)
    state = made.state_dict()
    both = [state["average"][f"{part}.linear.weight"] for part in ("embedder", "twin")]
    assert torch.equal(*both)
    assert not torch.equal(both[0], state["network"]["embedder.linear.weight"])
    current = weights(made)
    with made.average.applied():
        assert torch.equal(made.network.embedder.linear.weight, both[0])
    assert all(torch.equal(value, current[name]) for name, value in weights(made).items())


def fold_run(folder: Path, fixed: tuple[int, int] | None = None, **changes: Any) -> Trainer:
    data = make_glyphs(10, 6, 16, 0)
    how = training(iterations_per_epoch=2, max_epochs=4, evaluate_every=1, patience=None, **changes)
    task = task_of(how, fixed_epochs=fixed)
    validation = None if fixed else data.subset(range(5, 10))
    return Trainer(task, data.subset(range(5)), validation, folder, CPU, checkpoint_seconds=0)


@pytest.mark.parametrize("fixed", [None, (4, 0)])
def test_the_average_is_evaluated_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: tuple[int, int] | None
) -> None:
    seen: list[dict[str, torch.Tensor]] = []

    def embed(forward: Any, network: torch.nn.Module, rows: Any) -> torch.Tensor:
        seen.append(checkpoints.clone(network.state_dict()))
        return torch.randn(30, 4)

    monkeypatch.setattr("reality_check.training.trainer.embed", embed)
    run = fold_run(tmp_path, fixed, ema=0.9)
    result = run.run()
    kept = checkpoints.load(tmp_path / "model.pt")
    assert kept is not None
    if fixed is None:
        expected = seen[1 + result.epoch]  # the first two are of epochs -1 and 0
        assert all(torch.equal(kept[name], value) for name, value in expected.items())
    state = run.module.state_dict()
    if fixed or result.epoch == 4:
        assert torch.equal(kept["embedder.weight"], state["average"]["embedder.weight"])
    assert not torch.equal(kept["embedder.weight"], state["network"]["embedder.weight"])
