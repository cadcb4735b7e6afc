"""Every model that ships with the package: it loads, and its network can be built."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import yaml
from support.paths import ROOT

from reality_check.config.model import Model
from reality_check.models import TRUNKS, preprocessing
from reality_check.models.network import build_network

FILES = sorted((ROOT / "configs" / "models").glob("*.yaml"))


def read(file: Path) -> Model:
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# "), "the first line says what it is and where it is from"
    model = Model.model_validate({"name": file.stem, **yaml.safe_load(text)})
    if model.trunk not in TRUNKS:
        try:
            importlib.import_module("torchvision")
        except (ImportError, RuntimeError, AttributeError) as error:
            pytest.skip(f"needs torchvision (the extra 'vision'), which does not import: {error}")
    return model


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_network_embeds_images(file: Path) -> None:
    model = read(file)
    network = build_network(model, (64, 64, 3), 12, seed=0, pretrained=False)
    assert network(torch.rand(3, 3, 64, 64)).shape == (3, 12)
    assert preprocessing(model, 3).bgr == (model.trunk == "bn_inception")
    if file.stem != "resnet50_normalized_softmax":  # one layer without bias
        assert network.state_dict().keys() & {"embedder.bias", "embedder.neck.weight"}


@pytest.mark.parametrize(
    ("name", "width"),
    [("bn_inception", 1024), ("bn_inception_appendix_d", 1024), ("resnet50_appendix_d", 2048)],
)
def test_the_embedders_of_the_published_networks(name: str, width: int) -> None:
    model = read(FILES[0].with_name(f"{name}.yaml"))
    layer = build_network(model, (64, 64, 3), 128, seed=0, pretrained=False).embedder
    assert layer.weight.shape == (128, width)
    # Protocol section 6: zero with ResNet-50, torch's initialisation elsewhere.
    assert bool(layer.bias.any()) == (name != "resnet50_appendix_d")
