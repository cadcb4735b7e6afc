from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning import losses as pml_losses
from torch import Tensor, nn

from pml_extensions.losses import CrossBatchMemory
from reality_check.training.plain_attributes import PlainAttributes
from reality_check.utils import checkpoints

CPU = torch.device("cpu")


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.parameters_in_a_list = [self.weight]
        self.device_name = "cuda:3"
        self.steps = 0
        self.stage: str | None = None
        self.average = np.float64(0.5)
        self.counts = np.zeros(3)
        self.queue: list[Tensor] = []
        self.seen: dict[Any, Any] = {}
        self.pair = (0, torch.zeros(2))
        self.register_buffer("center", torch.zeros(2), persistent=False)
        self.inner = nn.Linear(2, 2)

    def learn(self) -> None:
        self.steps += 1
        self.stage = "warm"
        self.average = 0.25 * self.average
        self.counts[1] += 1
        self.queue.append(torch.full((2,), float(self.steps)))
        self.seen[self.steps] = {"last": torch.tensor(self.steps)}
        self.pair = (self.steps, self.pair[1] + 1)
        self.center += 1
        self.made_late = torch.arange(self.steps)
        self.inner.calls = self.steps  # type: ignore[assignment]


def values(loss: Loss) -> str:
    named = {name: value for name, value in vars(loss).items() if not name.startswith("_")}
    return repr((named, loss.center, getattr(loss.inner, "calls", None)))


def through_a_file(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    checkpoints.save(folder / "state.pt", state)
    loaded = checkpoints.load(folder / "state.pt")
    assert loaded is not None
    return loaded


def test_all_that_changed_is_there_again_in_another_process(tmp_path: Path) -> None:
    loss, other = Loss(), Loss()
    kept, restored = (PlainAttributes({"loss": one}, CPU) for one in (loss, other))
    loss.learn()
    loss.learn()
    restored.load_state_dict(through_a_file(kept.state_dict(), tmp_path))
    assert values(other) == values(loss)
    loss.learn()
    other.learn()
    assert values(other) == values(loss)


def test_going_back_undoes_all_changes_since() -> None:
    loss = Loss()
    attributes = PlainAttributes({"loss": loss, "miner": None}, CPU)
    untouched, first = values(loss), attributes.state_dict()
    loss.learn()
    after_one, second = values(loss), attributes.state_dict()
    loss.learn()
    for _ in range(2):  # what was trained since does not reach into a state
        attributes.load_state_dict(second)
        assert values(loss) == after_one
        loss.learn()
    attributes.load_state_dict(first)
    assert values(loss) == untouched
    assert not hasattr(loss, "made_late")


def test_what_stayed_is_no_state_and_stays_what_it_is() -> None:
    """The name of a device, say, on the machine where the training resumes."""
    loss, elsewhere = Loss(), Loss()
    elsewhere.device_name = "cpu"
    kept, restored = (PlainAttributes({"loss": one}, CPU) for one in (loss, elsewhere))
    assert not any(kept.state_dict().values())
    loss.learn()
    assert "device_name" not in kept.state_dict()["loss."]
    restored.load_state_dict(kept.state_dict())
    assert (elsewhere.device_name, elsewhere.steps) == ("cpu", 1)


def test_parameters_modules_and_other_objects_are_left_alone() -> None:
    loss = Loss()
    loss.late: Any = None  # type: ignore[misc]
    attributes = PlainAttributes({"loss": loss}, CPU)
    state = attributes.state_dict()
    loss.late = nn.Parameter(torch.ones(1))
    loss.generator = torch.Generator()
    found = attributes.state_dict()["loss."]
    assert not {"late", "generator", "parameters_in_a_list", "weight", "training"} & found.keys()
    late, generator = loss.late, loss.generator
    attributes.load_state_dict(state)
    assert loss.late is late
    assert loss.generator is generator
    assert loss.parameters_in_a_list[0] is loss.weight


def test_tensors_go_where_they_were() -> None:
    loss = Loss()
    loss.on_device = torch.zeros(2, device="meta")
    state = PlainAttributes({"loss": Loss()}, CPU).state_dict()
    state["loss."] = {"on_device": {"on the device": torch.ones(2)}, "in_memory": torch.ones(2)}
    PlainAttributes({"loss": loss}, torch.device("meta")).load_state_dict(state)
    assert (loss.on_device.device.type, loss.in_memory.device.type) == ("meta", "cpu")


def test_miners_that_are_no_modules_count_too() -> None:
    class Miner:
        calls = 0

    miner, other = Miner(), Miner()
    kept, restored = (PlainAttributes({"miner": one}, CPU) for one in (miner, other))
    miner.calls = 3
    restored.load_state_dict(kept.state_dict())
    assert other.calls == 3


def test_a_cross_batch_memory_goes_on_where_it_was(tmp_path: Path) -> None:
    for cls in (pml_losses.CrossBatchMemory, CrossBatchMemory):
        torch.manual_seed(0)
        batches = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(6)]
        loss, other = (cls(pml_losses.ContrastiveLoss(), 4, memory_size=20) for _ in range(2))
        kept, restored = (PlainAttributes({"loss": one}, CPU) for one in (loss, other))
        for x, labels in batches[:2]:
            loss(x, labels)
        other.load_state_dict(loss.state_dict())
        restored.load_state_dict(through_a_file(kept.state_dict(), tmp_path))
        for x, labels in batches[2:]:
            assert torch.equal(loss(x, labels), other(x, labels))
