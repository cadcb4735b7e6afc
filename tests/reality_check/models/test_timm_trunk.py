"""timm's trunks: maps or vectors, tags, weights and their preprocessing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models import preprocessing, weights_fingerprint
from reality_check.models.network import build_network
from reality_check.utils.errors import UsageError


def model(name: str, **changes: Any) -> Model:
    return Model.model_validate({"name": "x", "trunk": f"timm:{name}", **changes})


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [
        ("resnet18", {}, (512, 2, 2)),
        ("resnet18", {"output_stride": 8}, (512, 8, 8)),
        ("mobilenetv3_small_050", {}, (1024, 2, 2)),
        ("convnext_atto", {}, (320, 2, 2)),
        ("vit_tiny_patch16_224", {"img_size": 64}, (192,)),
        ("swin_tiny_patch4_window7_224", {"img_size": 64}, (768,)),
        ("inception_next_atto", {}, (960,)),  # it always pools
    ],
)
@torch.no_grad()
def test_maps_where_there_are_maps_else_vectors(
    name: str, arguments: dict[str, Any], shape: tuple[int, ...], timm: Any
) -> None:
    network = build_network(model(name, arguments=arguments), (64, 64, 3), 4, seed=0).eval()
    images = torch.randn(2, 3, 64, 64)
    output = network.trunk(images)
    assert output.shape == (2, *shape)
    # timm's own pooled features, of a network with the same weights.
    peer = timm.create_model(name, num_classes=0, **arguments).eval()
    peer.load_state_dict(network.trunk.state_dict())
    if name != "mobilenetv3_small_050" and name != "convnext_atto":  # layers behind the pooling
        pooled = output.mean(dim=(2, 3)) if output.ndim == 4 else output
        torch.testing.assert_close(pooled, peer(images), rtol=1e-4, atol=1e-5)


def test_random_weights_come_from_the_seed_whatever_was_built_before(timm: Any) -> None:
    from reality_check.models.timm_trunk import _returns_maps

    _returns_maps.cache_clear()
    states = [build_network(model("resnet18"), (32, 32, 1), 4, seed=3).state_dict() for _ in "ab"]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert states[0]["trunk.conv1.weight"].shape == (64, 1, 7, 7)


def test_weights_that_timm_reads(timm: Any, tmp_path: Path) -> None:
    """A file in the place of the download: timm reads it, with its own conversions."""
    published = timm.create_model("resnet18")
    torch.save(published.state_dict(), tmp_path / "published.pth")
    overlay = {"pretrained_cfg_overlay": {"file": str(tmp_path / "published.pth")}}
    config = model("resnet18", weights="imagenet", arguments=overlay)
    loaded = build_network(config, (32, 32, 3), 4, seed=1)
    assert torch.equal(loaded.trunk.layer3[0].conv1.weight, published.layer3[0].conv1.weight)
    scratch = build_network(config, (32, 32, 3), 4, seed=1, pretrained=False)
    assert torch.equal(scratch.embedder.weight, loaded.embedder.weight)


def test_a_local_file(timm: Any, tmp_path: Path) -> None:
    published = timm.create_model("resnet18")
    torch.save(published.state_dict(), tmp_path / "weights.pth")
    config = model("resnet18", weights=str(tmp_path / "weights.pth"))
    loaded = build_network(config, (32, 32, 1), 4, seed=1)
    assert torch.equal(loaded.trunk.conv1.weight, published.conv1.weight)
    assert loaded(torch.rand(2, 3, 32, 32)).shape == (2, 4)


def test_a_folder_and_images_of_another_size(timm: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    name = "vit_tiny_patch16_224"
    published = timm.create_model(name, depth=1, embed_dim=8, num_heads=1, num_classes=3).eval()
    folder = tmp_path / "vit"
    values = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
    timm.models.save_for_hf(published, folder, {"pretrained_cfg": values}, safe_serialization=True)
    small = {"depth": 1, "embed_dim": 8, "num_heads": 1}
    config = model(name, weights=str(folder), arguments=small)
    images = torch.rand(2, 3, 224, 224)
    trunk = build_network(config, (224, 224, 3), 4, seed=1).trunk.eval()
    with torch.no_grad():
        expected = published.forward_head(published.forward_features(images), pre_logits=True)
        torch.testing.assert_close(trunk(images), expected)
    assert preprocessing(config, 3) == Preprocessing(**values)
    # Images of another size: timm resizes the position embeddings.
    config = model(name, weights=str(folder), arguments={**small, "img_size": 32})
    resized = build_network(config, (32, 32, 3), 4, seed=1).trunk
    overlay = {"file": str(folder / "model.safetensors")}
    peer = timm.create_model(
        name, True, pretrained_cfg_overlay=overlay, img_size=32, num_classes=0, **small
    )
    assert torch.equal(resized.pos_embed, peer.pos_embed)
    assert resized.pos_embed.shape[1] == 5
    given = {**small, "img_size": 32, "pretrained_cfg_overlay": overlay | {"custom_load": False}}
    config = model(name, weights="published", arguments=given)
    resized = build_network(config, (32, 32, 3), 4, seed=1).trunk
    assert torch.equal(resized.pos_embed, peer.pos_embed)
    config = model(name, weights=str(folder), arguments={**small, "img_size": 32})

    before = weights_fingerprint(config)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("0.7", "0.8"))
    assert weights_fingerprint(config) != before
    other = model("vit_small_patch16_224", weights=str(folder))
    with pytest.raises(UsageError, match="is of vit_tiny_patch16_224; write timm:vit_tiny"):
        build_network(other, (224, 224, 3), 4, seed=1)
    state = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in state.items() if "norm1" not in k}, folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"lacks blocks\.0\.norm1\.weight, "):
        build_network(config, (32, 32, 3), 4, seed=1)
    save_file(state, folder / "another.safetensors")
    with pytest.raises(UsageError, match=r"has 2 files of safetensors.*hf download NAME"):
        weights_fingerprint(config)


def test_without_a_network_the_message_says_what_to_fetch(
    timm: Any, offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it tries for long
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    url = "https://huggingface.co/timm/resnet18.a1_in1k/resolve/main/model.safetensors"
    words = (
        rf"resnet18\.a1_in1k could not .*download {re.escape(url)} yourself and write weights: /a/"
    )
    with pytest.raises(UsageError, match=words):
        build_network(model("resnet18.a1_in1k", weights="imagenet"), (32, 32, 3), 4, seed=0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (("resnet18", {"weights": "a9_in1k"}), "no weights 'a9_in1k' for resnet18; .*a1_in1k"),
        (("resnet18.a1_in1k", {"weights": "a2_in1k"}), "names the weights 'a1_in1k', but weights"),
        (("resnet18", {"arguments": {"in_chans": 1}}), "'in_chans' is set by the harness"),
        (("resnet18", {"arguments": {"zero_init": 1}}), "could not be built with zero_init=1"),
        (("vit_tiny_patch16_224", {}), r"does not take images of 64x64.*\{img_size: SIDE\}"),
    ],
)
def test_what_cannot_be(config: tuple[str, dict[str, Any]], words: str, timm: Any) -> None:
    with pytest.raises(UsageError, match=words):
        build_network(model(config[0], **config[1]), (64, 64, 3), 4, seed=0)


def test_preprocessing_and_fingerprint_are_those_of_the_tag(timm: Any) -> None:
    imagenet = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for channels in (1, 3):
        assert preprocessing(model("resnet50", weights="imagenet"), channels) == imagenet
        assert preprocessing(model("resnet50", weights="/a/file.pth"), channels) == imagenet
    vit = model("vit_tiny_patch16_224", weights="imagenet")
    assert preprocessing(vit, 3) == Preprocessing((0.5,) * 3, (0.5,) * 3)
    for config in (
        model("resnet50.a1_in1k", weights="imagenet"),
        model("resnet50", weights="a1_in1k"),
    ):
        assert weights_fingerprint(config) == f"timm {timm.__version__} resnet50.a1_in1k"


def test_last_stride_and_the_last_bn(timm: Any) -> None:
    network = build_network(
        model("resnet18", last_stride=1, remove_last_bn_relu=True), (64, 64, 3), 4, seed=0
    )
    maps = network.trunk(torch.rand(2, 3, 64, 64))
    assert maps.shape == (2, 512, 4, 4)
    assert (maps < 0).any()
    with pytest.raises(UsageError, match="halves its maps by AvgPool2d"):
        build_network(model("resnet18d", last_stride=1), (64, 64, 3), 4, seed=0)
