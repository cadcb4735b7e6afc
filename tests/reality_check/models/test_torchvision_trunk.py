"""torchvision's trunks against the networks that they are cut from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models import preprocessing, weights_fingerprint
from reality_check.models.network import build_network
from reality_check.models.torchvision_trunk import cut
from reality_check.utils.errors import UsageError

#: One of each family, with the side of its input.
FAMILIES = {
    "alexnet": 96,
    "convnext_tiny": 64,
    "densenet121": 64,
    "efficientnet_b0": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "maxvit_t": 224,
    "mnasnet0_5": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "regnet_y_400mf": 64,
    "resnet18": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "swin_t": 64,
    "vit_b_32": 224,
}
#: The layer whose input is the last feature maps, or the means over them.
BEHIND = {
    "densenet121": "classifier",
    "maxvit_t": "classifier.0",
    "mnasnet0_5": "classifier.1",
    "mobilenet_v2": "classifier.1",
    "shufflenet_v2_x0_5": "fc",
    "squeezenet1_1": "classifier.1",
    "vit_b_32": "heads",
}


def make(torchvision: Any, name: str, **arguments: Any) -> nn.Module:
    if name in ("googlenet", "inception_v3"):
        arguments |= {"init_weights": False}
    torch.manual_seed(0)
    network: nn.Module = torchvision.models.get_model(name, weights=None, **arguments)
    return network.eval()


def input_of(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    actual: list[Tensor] = []
    module = network.get_submodule(layer)
    module.register_forward_pre_hook(lambda _, given: actual.append(given[0].clone()))
    network(images)
    return actual[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_trunk_returns_what_the_network_pools(name: str, torchvision: Any) -> None:
    network = make(torchvision, name)
    images = torch.randn(2, 3, FAMILIES[name], FAMILIES[name])
    expected = input_of(network, BEHIND.get(name, "avgpool"), images)
    maps = cut(copy.deepcopy(network))(images)
    assert maps.ndim == (2 if name == "vit_b_32" else 4)
    actual = maps if expected.ndim == maps.ndim else maps.mean(dim=(2, 3))
    torch.testing.assert_close(actual, expected)


def resnet18(**changes: Any) -> Model:
    return Model.model_validate({"name": "x", "trunk": "resnet18", **changes})


def test_random_weights_come_from_the_seed(torchvision: Any) -> None:
    first, second, third = (
        build_network(resnet18(), (32, 32, 3), 4, seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(
        first["trunk.layer1.0.conv1.weight"], third["trunk.layer1.0.conv1.weight"]
    )
    assert not [name for name in first if name.startswith("trunk.fc")]


@torch.no_grad()
def test_a_grey_image_enters_a_random_trunk_once(torchvision: Any) -> None:
    grey = build_network(resnet18(), (32, 32, 1), 4, seed=1).eval()
    rgb = build_network(resnet18(), (32, 32, 3), 4, seed=1).eval()
    images = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(images), rgb(images.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize("tag", ["imagenet", "IMAGENET1K_V1"])
def test_published_weights_in_the_folder_of_torch(tag: str, torchvision: Any, hub: Path) -> None:
    hub.mkdir(parents=True)
    network = make(torchvision, "resnet18")
    torch.save(network.state_dict(), hub / "resnet18-f37072fd.pth")
    model = resnet18(weights=tag)
    loaded = build_network(model, (32, 32, 3), 4, seed=9)
    for name, value in network.state_dict().items():
        if not name.startswith("fc."):
            assert torch.equal(loaded.state_dict()[f"trunk.{name}"], value)
    scratch = build_network(model, (32, 32, 3), 4, seed=9, pretrained=False)
    assert torch.equal(scratch.embedder.weight, loaded.embedder.weight)
    assert not torch.equal(scratch.trunk.conv1.weight, loaded.trunk.conv1.weight)
    assert weights_fingerprint(model) == "torchvision IMAGENET1K_V1 resnet18-f37072fd.pth"


def test_a_local_file_of_the_whole_network(torchvision: Any, tmp_path: Path) -> None:
    network = make(torchvision, "resnet18")
    torch.save({"state_dict": network.state_dict()}, tmp_path / "checkpoint.tar")
    model = resnet18(weights=str(tmp_path / "checkpoint.tar"))
    loaded = build_network(model, (32, 32, 3), 4, seed=9)
    assert torch.equal(loaded.trunk.layer4[1].conv2.weight, network.layer4[1].conv2.weight)


def test_without_a_network_the_message_says_what_to_fetch(
    torchvision: Any, hub: Path, offline: None
) -> None:
    url = r"https://download\.pytorch\.org/models/resnet50-11ad3fa6\.pth"
    words = (
        rf"IMAGENET1K_V2 .*download {url} yourself and put it as resnet50-11ad3fa6\.pth into {hub}"
    )
    with pytest.raises(UsageError, match=words):
        build_network(resnet18(trunk="resnet50", weights="IMAGENET1K_V2"), (32, 32, 3), 4, seed=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "IMAGENET1K_V3"}, "IMAGENET1K_V1 or the path of a file. Did you mean"),
        ({"arguments": {"num_classes": 3}}, "'num_classes' is set by the harness"),
        ({"arguments": {"zero_init": 1}}, "could not be built with zero_init=1: TypeError"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], words: str, torchvision: Any) -> None:
    with pytest.raises(UsageError, match=words):
        build_network(resnet18(**changes), (32, 32, 3), 4, seed=0)


# Preprocessing

IMAGENET = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("weights", ["imagenet", "IMAGENET1K_V1", "/a/file.pth"])
@pytest.mark.parametrize("channels", [1, 3])
def test_preprocessing_is_that_of_the_weights(
    weights: str, channels: int, torchvision: Any
) -> None:
    assert preprocessing(resnet18(weights=weights), channels) == IMAGENET


@torch.no_grad()
@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_trunks_that_shift_their_input_get_it_shifted(name: str, torchvision: Any) -> None:
    """Their published weights come with a change of the input inside the forward, cut off here."""
    network = make(torchvision, name, transform_input=True)
    used = preprocessing(Model(name="x", trunk=name, weights="imagenet"), 3)
    images = torch.rand(2, 3, 96, 96)

    def normalize(by: Preprocessing) -> Tensor:
        mean, std = (torch.tensor(v)[:, None, None] for v in (by.mean, by.std))
        return (images - mean) / std

    expected = input_of(network, "avgpool", normalize(IMAGENET))
    torch.testing.assert_close(cut(network)(normalize(used)), expected, rtol=1e-4, atol=1e-5)


# Changes of ResNets


@pytest.mark.parametrize(("name", "strided"), [("resnet18", "conv1"), ("resnet50", "conv2")])
@torch.no_grad()
def test_last_stride_one(name: str, strided: str, torchvision: Any) -> None:
    model = resnet18(trunk=name, last_stride=1)
    changed = build_network(model, (64, 64, 3), 4, seed=0).eval().trunk
    by_hand = build_network(resnet18(trunk=name), (64, 64, 3), 4, seed=0).eval().trunk
    images = torch.rand(2, 3, 64, 64)
    assert by_hand(images).shape[2:] == (2, 2)
    getattr(by_hand.layer4[0], strided).stride = (1, 1)
    by_hand.layer4[0].downsample[0].stride = (1, 1)
    assert changed(images).shape[2:] == (4, 4)
    torch.testing.assert_close(changed(images), by_hand(images))


@pytest.mark.parametrize("mode", ["paper", "official"])
def test_the_last_bn_and_relu_are_removed_after_the_weights_are_loaded(
    mode: str, torchvision: Any, tmp_path: Path
) -> None:
    torch.save(make(torchvision, "resnet18").state_dict(), tmp_path / "weights.pth")
    model = resnet18(weights=str(tmp_path / "weights.pth"), remove_last_bn_relu=mode)
    network = build_network(model, (32, 32, 3), 4, seed=0)
    assert (network.trunk(torch.rand(2, 3, 32, 32)) < 0).any()
    assert "trunk.layer4.1.bn2.weight" not in network.state_dict()
    again = build_network(model, (32, 32, 3), 4, seed=1, pretrained=False)
    again.load_state_dict(network.state_dict())


def test_only_resnets_lose_their_last_bn_and_relu() -> None:
    model = Model(name="x", trunk="bn_inception", remove_last_bn_relu="paper")
    refused = "trunk bn_inception: remove_last_bn_relu takes one ResNet"
    with pytest.raises(UsageError, match=refused):
        build_network(model, (32, 32, 3), 4, seed=0)
