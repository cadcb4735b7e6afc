"""transformers' models from folders: the model's own numbers, poolings, and what is refused."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.tensors import TensorShape
from reality_check.models import preprocessing, weights_fingerprint
from reality_check.models.network import Network, build_network
from reality_check.models.partly_frozen import ResumedTrunk, output_of
from reality_check.models.trunk_building import published_crop_size
from reality_check.utils.errors import UsageError

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
IMAGES = SMALL | {"num_hidden_layers": 2, "image_size": 16, "patch_size": 8}
TEXTS = SMALL | {"num_hidden_layers": 2, "vocab_size": 50, "max_position_embeddings": 20}
TOWERS = {"vision_config": IMAGES, "text_config": TEXTS | {"eos_token_id": 49, "bos_token_id": 48}}
MAPS = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
CONFIGS: dict[str, dict[str, Any]] = {
    "ViT": IMAGES,
    "Dinov2": IMAGES,
    "Dinov2WithRegisters": IMAGES,
    "DINOv3ViT": IMAGES,
    "ViTMAE": IMAGES,
    "CLIP": TOWERS,
    "CLIPVision": IMAGES,
    "Siglip": TOWERS,
    "Swin": {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1], "num_heads": [2]}
    | {"window_size": 4},
    "ResNet": MAPS | {"layer_type": "basic"},
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "Bert": TEXTS,
    "Roberta": TEXTS | {"pad_token_id": 1},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20, "vocab_size": 50},
}
PIXELS = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[5, 8, 9, 0, 0], [4, 49, 0, 0, 0], [7, 2, 9, 6, 49]])
TOKENS = TensorShape((5,), torch.int64)
PROCESSOR = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]} | {
    "rescale_factor": 1 / 255,
    "crop_size": {"height": 12, "width": 12},
    "size": {"shortest_edge": 14},
}

Saved = Callable[..., tuple[Path, Any]]


@pytest.fixture
def saved(transformers: Any, tmp_path: Path) -> Saved:
    """A function that saves a small random model, and returns its folder and the model."""

    def save(name: str, folder: str = "model", **options: Any) -> tuple[Path, Any]:
        if not hasattr(transformers, f"{name}Config"):
            pytest.skip(f"transformers {transformers.__version__} has no {name}")
        config = getattr(transformers, f"{name}Config")(**CONFIGS[name])
        torch.manual_seed(4)
        model = getattr(transformers, f"{name}Model")(config, **options).eval()
        for parameter in model.parameters():  # some begin with zeros
            torch.nn.init.normal_(parameter.detach(), std=0.3)
        model.save_pretrained(tmp_path / folder)
        processor = json.dumps(PROCESSOR)
        (tmp_path / folder / "preprocessor_config.json").write_text(processor)
        return tmp_path / folder, model

    return save


def model_of(folder: Path | str, **changes: Any) -> Model:
    given = {"name": "x", "trunk": f"hf:{folder}", "weights": "published", **changes}
    return Model.model_validate(given)


def built(folder: Path | str, shape: Any = (16, 16, 3), **changes: Any) -> Network:
    return build_network(model_of(folder, **changes), shape, 4, seed=1).eval()


@torch.no_grad()
def trunk(folder: Path, samples: torch.Tensor, pooling: str | None = None) -> torch.Tensor:
    shape = (16, 16, 3) if samples is PIXELS else TOKENS
    arguments = {} if pooling is None else {"pooling": pooling}
    return built(folder, shape, arguments=arguments).trunk(samples)


def frozen(network: Network) -> set[str]:
    return {name for name, p in network.trunk.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize(
    ("name", "pooling", "expected"),
    [
        ("ViT", None, lambda out: out.pooler_output),
        ("ViT", "class", lambda out: out.last_hidden_state[:, 0]),
        ("ViT", "mean", lambda out: out.last_hidden_state[:, 1:].mean(dim=1)),
        ("Dinov2", None, lambda out: out.last_hidden_state[:, 0]),
        ("Dinov2WithRegisters", "mean", lambda out: out.last_hidden_state[:, 5:].mean(dim=1)),
        ("CLIPVision", None, lambda out: out.pooler_output),
        ("Swin", None, lambda out: out.pooler_output),
        ("Swin", "mean", lambda out: out.last_hidden_state.mean(dim=1)),
        ("ResNet", None, lambda out: out.last_hidden_state),
        ("ResNet", "model", lambda out: out.pooler_output.flatten(1)),
        ("ConvNext", None, lambda out: out.last_hidden_state),
    ],
)
@torch.no_grad()
def test_images(name: str, pooling: str | None, expected: Any, saved: Saved) -> None:
    folder, model = saved(name)
    actual = trunk(folder, PIXELS, pooling)
    torch.testing.assert_close(actual, expected(model(pixel_values=PIXELS)), rtol=1e-6, atol=1e-6)


def mean_by_loops(output: Any, padding: int | None) -> torch.Tensor:
    rows = []
    for ids, tokens in zip(IDS, output.last_hidden_state, strict=True):
        rows.append(torch.stack([t for i, t in zip(ids, tokens, strict=True) if i != padding]))
    return torch.stack([row.mean(dim=0) for row in rows])


@pytest.mark.parametrize(("name", "padding"), [("Bert", 0), ("Roberta", 1), ("GPT2", None)])
@torch.no_grad()
def test_texts_are_means_without_padding(name: str, padding: int | None, saved: Saved) -> None:
    folder, model = saved(name)
    mask = torch.ones_like(IDS) if padding is None else (padding != IDS).long()
    output = model(input_ids=IDS, attention_mask=mask)
    torch.testing.assert_close(trunk(folder, IDS), mean_by_loops(output, padding))
    first = trunk(folder, IDS, "class")
    torch.testing.assert_close(first, output.last_hidden_state[:, 0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("recorded", "pooling"),
    [
        ({"pooling_mode": "cls"}, "class"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "class"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": ["mean"], "include_prompt": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_texts_are_pooled_as_sentence_transformers_says(
    recorded: dict[str, Any], pooling: str, saved: Saved
) -> None:
    folder, _ = saved("Bert")
    before = weights_fingerprint(model_of(folder))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(recorded))
    assert built(folder, TOKENS).trunk.pooling == pooling
    assert built(folder, TOKENS, arguments={"pooling": "class"}).trunk.pooling == "class"
    assert weights_fingerprint(model_of(folder)) != before


def test_what_sentence_transformers_saves_pools_as_it_does(saved: Saved) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Pooling

    folder, _ = saved("Bert")
    (folder / "1_Pooling").mkdir()
    Pooling(16, "cls").save(str(folder / "1_Pooling"))
    assert built(folder, TOKENS).trunk.pooling == "class"
    Pooling(16, ("cls", "max")).save(str(folder / "1_Pooling"))
    with pytest.raises(UsageError, match=r"by cls and max, .*write pooling: mean, class or last"):
        built(folder, TOKENS)


@torch.no_grad()
def test_the_last_token_is_the_last_that_is_no_padding(saved: Saved) -> None:
    folder, model = saved("Bert")
    for ids, last in ((IDS, [2, 1, 4]), (IDS.flip(1), [4, 4, 4])):  # padded behind, or in front
        tokens = model(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
        torch.testing.assert_close(trunk(folder, ids, "last"), tokens[range(3), last])


def test_a_model_that_draws_what_it_returns(saved: Saved) -> None:
    folder, model = saved("ViTMAE")
    with pytest.raises(
        UsageError, match=r"ViTMAEModel, which returns something else .*write arguments: {mask_rat"
    ):
        built(folder)
    with torch.no_grad():
        actual = built(folder, arguments={"mask_ratio": 0.0}).trunk(PIXELS)
        model.config.mask_ratio = model.embeddings.config.mask_ratio = 0.0
        torch.testing.assert_close(actual, model(pixel_values=PIXELS).last_hidden_state[:, 0])


@pytest.mark.parametrize("name", ["ViT", "DINOv3ViT", "Swin"])
@torch.no_grad()
def test_images_from_a_module_on(name: str, saved: Saved) -> None:
    whole = built(saved(name)[0]).trunk
    names = [key for key, _ in whole.named_modules() if key.endswith(("layer.0", "layers.0"))]
    stored = output_of(whole, names[0], PIXELS)
    resumed = ResumedTrunk(copy.deepcopy(whole), names[0], PIXELS[:1])
    torch.testing.assert_close(resumed.eval()(stored), whole(PIXELS), rtol=1e-5, atol=1e-5)
    copied = copy.deepcopy(resumed)  # as for an average of the weights
    assert torch.equal(copied(stored), resumed(stored))
    assert not any(value.is_meta for value in resumed.state_dict().values())


@pytest.mark.parametrize("name", ["CLIP", "Siglip"])
@torch.no_grad()
def test_a_model_of_images_and_texts_is_that_of_the_samples(name: str, saved: Saved) -> None:
    folder, model = saved(name)
    mask = {} if name == "Siglip" else {"attention_mask": (IDS != 1).long()}
    pairs = [
        (PIXELS, model.vision_model(pixel_values=PIXELS)),
        (IDS, model.text_model(input_ids=IDS, **mask)),
    ]
    for samples, output in pairs:
        torch.testing.assert_close(trunk(folder, samples), output.pooler_output)


@torch.no_grad()
def test_images_of_another_size(saved: Saved) -> None:
    for name in ("ViT", "Dinov2"):
        folder, model = saved(name, name)
        images = torch.rand(2, 3, 24, 32)
        options = {"interpolate_pos_encoding": True} if name == "ViT" else {}
        expected = model(pixel_values=images, **options).pooler_output
        actual = built(folder, (24, 32, 3)).trunk(images)
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_what_the_output_does_not_depend_on_is_not_trained(saved: Saved) -> None:
    folder, _ = saved("ViT", add_pooling_layer=False)
    network = built(folder)
    assert network.trunk.pooling == "class"  # the pooler's weights are not there
    assert frozen(network) == {"model.pooler.dense.weight", "model.pooler.dense.bias"}
    network(PIXELS).sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)
    with pytest.raises(
        UsageError, match=r"lacks the weights of model\.pooler.*; write pooling: .* class"
    ):
        trunk(folder, PIXELS, "model")
    folder, _ = saved("Dinov2", "dino")
    assert frozen(built(folder)) == {"model.embeddings.mask_token"}


def test_weights_replace_random_ones(saved: Saved) -> None:
    folder, model = saved("ViT")
    states = {
        name: built(folder, weights=name).trunk.state_dict()
        for name in ("none", "imagenet", "published")
    }
    key = "pooler.dense.weight"
    assert torch.equal(states["published"][f"model.{key}"], model.state_dict()[key])
    assert torch.equal(states["published"][f"model.{key}"], states["imagenet"][f"model.{key}"])
    assert not torch.equal(states["published"][f"model.{key}"], states["none"][f"model.{key}"])
    again = built(folder, weights="none").trunk.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in states["none"].items())
    small = built(folder, weights="none", arguments={"num_hidden_layers": 1}).trunk.state_dict()
    assert len(small) < len(again)
    grey = built(folder, (16, 16, 1), weights="none", arguments={"num_channels": 1})
    assert grey(torch.rand(2, 1, 16, 16)).shape == (2, 4)


def test_weights_from_a_folder_that_the_name_does_not_name(saved: Saved) -> None:
    folder, model = saved("ViT")
    elsewhere = {"weights": str(folder)}
    network = built("google/never-downloaded", **elsewhere)
    torch.testing.assert_close(network.trunk(PIXELS), model(pixel_values=PIXELS).pooler_output)
    config = model_of("google/never-downloaded", **elsewhere)
    assert published_crop_size(config) == 12
    assert preprocessing(config, 3).std == (0.2, 0.3, 0.25)
    assert weights_fingerprint(config) == weights_fingerprint(model_of(folder))


def test_shards_and_half_precision(saved: Saved) -> None:
    folder, model = saved("ViT")
    model.half().save_pretrained(folder.parent / "shards", max_shard_size="4KB")
    assert len(list((folder.parent / "shards").glob("*.safetensors"))) > 1
    (folder / "preprocessor_config.json").rename(
        folder.parent / "shards" / "preprocessor_config.json"
    )
    actual = trunk(folder.parent / "shards", PIXELS)
    expected = model.float()(pixel_values=PIXELS).pooler_output
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_what_hf_download_fetched(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, model = saved("ViT")
    cache = folder.parent / "hub"
    snapshot = cache / "models--me--vit" / "snapshots" / ("a" * 40)
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    (cache / "models--me--vit" / "refs").mkdir()
    (cache / "models--me--vit" / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    actual = built("me/vit").trunk(PIXELS)
    torch.testing.assert_close(actual, model(pixel_values=PIXELS).pooler_output)


def test_preprocessing_is_that_of_the_folder(saved: Saved) -> None:
    folder, _ = saved("ViT")
    config = model_of(folder)
    expected = Preprocessing((0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 1.0)
    assert preprocessing(config, 3) == preprocessing(config, 1) == expected
    assert preprocessing(model_of(folder, weights="none"), 1) == Preprocessing()
    assert published_crop_size(config) == 12
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(PROCESSOR | {"rescale_factor": 1, "crop_size": None, "size": 9}))
    assert preprocessing(config, 3).scale == 255
    assert published_crop_size(config) == 9
    given = {"mean": 0.1, "std": [0.2, 0.2, 0.3]}
    used = preprocessing(model_of(folder, preprocessing=given), 1)
    assert used == Preprocessing((0.1,) * 3, (0.2, 0.2, 0.3), 255.0)
    file.rename(folder / "kept.json")  # processors of several parts are saved as one file
    joined = {"image_processor": PROCESSOR, "processor_class": "CLIPProcessor"}
    (folder / "processor_config.json").write_text(json.dumps(joined))
    assert preprocessing(config, 3) == expected
    (folder / "processor_config.json").unlink()
    for content in ("{}", json.dumps(PROCESSOR | {"do_normalize": False})):
        file.write_text(content)
        with pytest.raises(UsageError, match=r"no preprocessor_config\.json .*put that file there"):
            preprocessing(config, 3)


def test_the_fingerprint_is_that_of_all_files(saved: Saved) -> None:
    folder, model = saved("ViT")
    seen = {weights_fingerprint(model_of(folder))}
    assert str(*seen).startswith("sha256:")
    assert weights_fingerprint(model_of(folder, weights="none")) is None
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).write_text((folder / name).read_text() + " ")
        seen.add(weights_fingerprint(model_of(folder)))
    torch.nn.init.zeros_(model.pooler.dense.weight.detach())
    model.save_pretrained(folder)
    seen.add(weights_fingerprint(model_of(folder)))
    assert len(seen) == 4


REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("ViT", {"weights": "none", "arguments": {"layers": 1}}, None, r"no argument 'layers'.*config"),
    ("ViT", {"weights": "best"}, None, r"no weights 'best'; write weights: none, published, or"),
    (
        "ViT",
        {"arguments": {"pooling": "max"}},
        None,
        "no pooling 'max'; write pooling: model or mean or class in",
    ),
    (
        "Swin",
        {"arguments": {"pooling": "class"}},
        None,
        "no pooling 'class'; write pooling: model or mean in",
    ),
    ("ViT", {"arguments": {"hidden_size": 32}}, None, r"do not fit its config\.json: "),
    ("ViT", {}, TOKENS, r"is a ViTModel, which does not take samples of 5 "),
    ("Bert", {}, (16, 16, 3), r"is a BertModel, which does not take samples of 3 x 16 x 16"),
    (
        "Bert",
        {},
        TensorShape((21,), torch.int32),
        r"BertModel, which does not take samples of 21 .*max_position_embeddings",
    ),
    (
        "Roberta",
        {},
        TensorShape((20,), torch.int32),
        r"which does not take samples of 20 .*max_position_embeddings",
    ),
]


@pytest.mark.parametrize(("name", "changes", "shape", "words"), REFUSED)
def test_what_cannot_be(
    name: str, changes: dict[str, Any], shape: Any, words: str, saved: Saved
) -> None:
    folder, _ = saved(name)
    with pytest.raises(UsageError, match=words) as raised:
        built(folder, shape or (16, 16, 3), **changes)
    assert len(str(raised.value)) < 700


def test_nothing_is_downloaded(
    transformers: Any, offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    words = "no folder me/vit, .*never done silently; run `hf download me/vit` once, or .*DIR"
    with pytest.raises(UsageError, match=words):
        built("me/vit")
    with pytest.raises(UsageError, match=r"no folder \./a/b/c, "):
        built("./a/b/c")


def test_folders_that_are_not_read(saved: Saved) -> None:
    folder, model = saved("ViT")
    config = folder / "config.json"
    plain = json.loads(config.read_text())

    def refused(words: str, **changes: Any) -> None:
        config.write_text(json.dumps(plain | changes))
        with pytest.raises(UsageError, match=words):
            built(folder)

    refused(r"needs code of its repository \(auto_map", auto_map={"AutoModel": "evil.Model"})
    refused(r"no config\.json with a model_type .*'unheard'.*timm:NAME", model_type="unheard")
    config.write_text(json.dumps(plain | {"attn_implementation": "evil/kernel"}))
    assert built(folder).trunk.model.config._attn_implementation != "evil/kernel"
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    refused(r"no model\.safetensors, .*a \.bin that could run code, are not read")
    with pytest.raises(UsageError, match=r"has no model\.safetensors"):
        weights_fingerprint(model_of(folder))
    config.unlink()
    with pytest.raises(UsageError, match=re.escape(f"{folder} has no config.json")):
        built(folder)


def test_transformers_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    words = r"hf:x needs transformers, .*pip install 'pml-extensions\[transformers\]', or"
    with pytest.raises(UsageError, match=words):
        built("x")
