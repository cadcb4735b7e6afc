"""Low-rank adapters: what is trained and kept, merging, and what is refused."""

from __future__ import annotations

import copy
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reality_check.config.model import ATTENTION, Adapter, Model
from reality_check.models import build_trunk
from reality_check.models.adapters import add_adapter, merge_adapters
from reality_check.models.network import BASE, Network, build_network
from reality_check.utils.errors import UsageError

#: Importing it takes 5 s, which only the process that runs these tests is to pay.
pytestmark = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 2}
SHAPE = (32, 32, 3)
#: A trunk, its arguments, and its adapter.
ADAPTED = {
    "vit": ("timm:vit_tiny_patch16_224", VIT, {"rank": 4, "dropout": 0.1}),
    "pointwise": ("timm:tf_efficientnet_lite0", {}, {"targets": [r".*\.conv_pwl?"]}),
}


def model(folder: Path, kind: str, **changes: Any) -> Model:
    trunk, arguments, adapter = ADAPTED[kind]
    plain = {"name": "x", "trunk": trunk, "arguments": arguments}
    file = folder / "weights.pth"
    if not file.exists():
        torch.manual_seed(0)
        torch.save(build_trunk(Model.model_validate(plain), SHAPE).state_dict(), file)
    return Model.model_validate({**plain, "weights": str(file), "adapter": adapter, **changes})


def trained(network: Network, seed: int = 0) -> Network:
    """The network after some steps, in which BatchNorm's statistics move."""
    torch.manual_seed(seed)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, 0.1)
    network.train()
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(4, 3, 32, 32)).square().mean().backward()
        optimizer.step()
    return network.eval()


@pytest.mark.parametrize("kind", ADAPTED)
def test_the_adapter_and_the_head_are_trained_and_kept_alone(
    kind: str, tmp_path: Path, timm: Any
) -> None:
    network = build_network(model(tmp_path, kind), SHAPE, 8, seed=1)
    names = {name for name, p in network.named_parameters() if p.requires_grad}
    assert names == {n for n, _ in network.named_parameters() if "lora_" in n or "embedder" in n}
    trained(network)
    kept = network.kept_state()
    assert BASE in kept
    statistics = {n for n, _ in network.named_buffers() if re.search("running|tracked", n)}
    assert set(kept) - {BASE} == names | statistics  # all of which moved
    again = build_network(model(tmp_path, kind), SHAPE, 8, seed=2)
    again.load_kept_state(kept)
    images = torch.randn(5, 3, 32, 32)
    assert torch.equal(again.eval()(images), network(images))
    # Where BatchNorm stands still, there is nothing of it.
    still = build_network(model(tmp_path, kind), SHAPE, 8, seed=1)
    assert set(still.kept_state()) - {BASE} == names


@pytest.mark.parametrize("kind", ADAPTED)
def test_merged_equals_unmerged(kind: str, tmp_path: Path, timm: Any) -> None:
    network = trained(build_network(model(tmp_path, kind), SHAPE, 8, seed=1))
    merged = copy.deepcopy(network)
    merge_adapters(merged)
    assert not [name for name in merged.state_dict() if "lora_" in name or "base_layer" in name]
    images = torch.randn(5, 3, 32, 32)
    expected = network(images)
    assert (merged(images) - expected).norm() < 1e-5 * expected.norm()
    # The adapter does something.
    plain = build_network(model(tmp_path, kind, adapter=None), SHAPE, 8, seed=1).eval()
    assert not torch.allclose(merged.trunk(images), plain.trunk(images), rtol=1e-2)


def test_an_adapter_belongs_to_its_weights(tmp_path: Path, timm: Any) -> None:
    kept = build_network(model(tmp_path, "vit"), SHAPE, 8, seed=1).kept_state()
    (tmp_path / "others").mkdir()
    torch.manual_seed(5)
    others = build_trunk(model(tmp_path, "vit", weights="none", adapter=None), SHAPE)
    torch.save(others.state_dict(), tmp_path / "others" / "weights.pth")
    network = build_network(model(tmp_path / "others", "vit"), SHAPE, 8, seed=1)
    with pytest.raises(UsageError, match=r"belong to the trunk with the weights sha256:\w+, but"):
        network.load_kept_state(kept)


def test_only_layers_behind_a_frozen_module_are_adapted(tmp_path: Path, timm: Any) -> None:
    network = build_network(model(tmp_path, "vit", frozen="blocks.1"), SHAPE, 8, seed=1)
    adapted = {n.partition(".attn")[0] for n, _ in network.named_parameters() if "lora_" in n}
    assert adapted == {"trunk.blocks.2"}


class Reads(nn.Module):
    """A layer of attention that is read, as in EVA-02 and Swin V2, and one that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(nn.functional.linear(x, self.qkv.weight))


def test_an_adapter_that_would_change_nothing() -> None:
    example = torch.zeros(1, 4)
    with pytest.raises(UsageError, match=r"trunk x does not call qkv but reads its weights, or"):
        add_adapter(Reads(), Adapter(), (), example, "trunk x")
    trunk = Reads().requires_grad_(False)
    add_adapter(trunk, Adapter(targets=["proj"]), (), example, "trunk x")
    assert all("proj.lora_" in name for name, p in trunk.named_parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        *((f"layer.0.{name}", True) for name in ("qkv", "Wqkv", "q_proj", "v_lin", "q", "kv")),
        *((f"layer.0.{name}", True) for name in ("query", "value_proj", "self.value")),
        *((f"layer.0.{name}", False) for name in ("k", "key", "proj", "o_proj", "values", "mlpq")),
    ],
)
def test_layers_for_queries_and_values(name: str, matches: bool) -> None:
    assert bool(re.fullmatch(ATTENTION, name)) == matches


def test_bad_adapters(tmp_path: Path, timm: Any) -> None:
    words = r"no layer of trunk timm:tf_efficientnet_lite0 has a name like .*the last layers are"
    with pytest.raises(UsageError, match=words):
        build_network(model(tmp_path, "pointwise", adapter={}), SHAPE, 8, seed=1)
    depthwise = {"targets": [r".*\.conv_dw"], "rank": 3}
    with pytest.raises(UsageError, match=r"blocks.0.0.conv_dw of trunk .* convolution with groups"):
        build_network(model(tmp_path, "pointwise", adapter=depthwise), SHAPE, 8, seed=1)
    (tmp_path / "weights.pth").unlink()
    normalization = {"targets": [r"blocks.*\.norm1"]}
    with pytest.raises(UsageError, match=r"adapter.targets: trunk .* cannot be adapted: "):
        build_network(model(tmp_path, "vit", adapter=normalization), SHAPE, 8, seed=1)
    for rank in ({"choices": [0, 4]}, {"low": 1, "high": 4}):
        with pytest.raises(ValueError, match=r"rank cannot be 0: |rank takes whole numbers"):
            model(tmp_path, "vit", adapter={"rank": rank})


def test_what_is_searched_is_filled_in() -> None:
    searched = {
        "rank": {"choices": [2, 4]},
        "alpha": {"low": 1.0, "high": 9.0},
    }
    found = Model.model_validate(
        {
            "name": "x",
            "trunk": "timm:vit_tiny_patch16_224",
            "adapter": searched,
            "frozen": {"choices": [None, "blocks.1"]},
            "arguments": {"depth": {"choices": [2, 3]}},
        }
    )
    assert [*found.searched()] == [
        "model.arguments.depth",
        "model.frozen",
        "model.adapter.rank",
        "model.adapter.alpha",
    ]
    filled = found.filled({"model.adapter.rank": 4, "model.frozen": "blocks.1"})
    assert filled.adapter is not None
    assert (filled.adapter.rank, filled.adapter.alpha) == (4, 5.0)
    assert (filled.frozen, filled.arguments) == ("blocks.1", {"depth": 2})
    assert Model.model_validate(found.plain()) == found


def test_random_frozen_weights_are_kept_whole(timm: Any) -> None:
    random = Model(name="x", trunk="timm:vit_tiny_patch16_224", arguments=VIT, frozen="blocks.1")
    network = build_network(random, SHAPE, 8, seed=1)
    assert isinstance(network, nn.Module)
    assert set(network.kept_state()) == set(network.state_dict())
