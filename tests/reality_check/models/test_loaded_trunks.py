"""Trunks of the user that load weights themselves: their fingerprint and their preprocessing."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from reality_check.config.model import Model
from reality_check.data import ImageSet
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.models import input_channels, preprocessing, weights_fingerprint
from reality_check.utils.errors import UsageError


class Random(nn.Module):
    """What is the same for all seeds is no weight: BatchNorm's ones, and a table."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.scale = nn.Parameter(torch.full((1,), 3.0))
        self.register_buffer("table", torch.arange(4.0))


class Pretrained(Random):
    preprocessing: ClassVar[dict[str, Any]] = {"mean": [0.4, 0.5, 0.6], "std": 0.2}

    def __init__(self, channels: int, shift: float = 0.0) -> None:
        super().__init__(channels)
        self.body = nn.Linear(2, 2, dtype=torch.bfloat16)
        with torch.no_grad():
            self.body.weight.copy_(torch.arange(4.0).reshape(2, 2) + shift)


def without_class(channels: int) -> nn.Module:
    return Random(channels)


class Seeded(Random):
    def __init__(self, channels: int) -> None:
        torch.manual_seed(5)
        super().__init__(channels)


class Odd(Random):
    preprocessing: ClassVar[dict[str, Any]] = {"means": 0.4}


class Layered(Random):
    def preprocessing(self, images: torch.Tensor) -> torch.Tensor:
        return images


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("loaded_trunks")
    for cls in (Random, Pretrained, without_class, Seeded, Odd, Layered):
        setattr(made, cls.__name__, cls)
        monkeypatch.setattr(cls, "__module__", "loaded_trunks")
    monkeypatch.setitem(sys.modules, "loaded_trunks", made)
    return made


@pytest.fixture
def images(make_images: Any) -> ImageSet:
    return make_images(3)


def model(name: str, **changes: Any) -> Model:
    return Model.model_validate({"name": "x", "trunk": f"loaded_trunks.{name}", **changes})


def test_only_loaded_weights_have_a_fingerprint(images: ImageSet) -> None:
    state = torch.random.get_rng_state()
    for name in ("Random", "without_class"):
        assert weights_fingerprint(model(name), images) is None
    found = weights_fingerprint(model("Pretrained"), images)
    assert str(found).startswith("sha256:")
    assert weights_fingerprint(model("Pretrained"), images) == found
    assert weights_fingerprint(model("Pretrained", arguments={"shift": 1}), images) != found
    assert weights_fingerprint(model("Seeded"), images) is not None
    assert weights_fingerprint(model("Pretrained")) is None  # without samples nothing is built
    assert weights_fingerprint(Model(name="x", trunk="conv4"), images) is None
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_class_says_what_its_pixels_are(module: ModuleType) -> None:
    expected = Preprocessing((0.4, 0.5, 0.6), (0.2,))
    assert preprocessing(model("Pretrained"), 1) == expected
    assert input_channels(model("Pretrained"), 1) == 3
    assert preprocessing(model("Pretrained", weights="/a/file.pth"), 3) == expected
    changed = model("Pretrained", preprocessing={"mean": 0.1})
    assert preprocessing(changed, 3) == Preprocessing((0.1,) * 3, (0.2,))
    for name in ("Random", "without_class", "Layered"):
        assert preprocessing(model(name), 3) == Preprocessing()
    module.preprocessing = {"scale": 255, "bgr": True}  # type: ignore[attr-defined]
    assert preprocessing(model("without_class"), 3) == Preprocessing(scale=255.0, bgr=True)
    assert preprocessing(model("Pretrained"), 3) == expected


def test_a_declaration_that_cannot_be(module: ModuleType) -> None:
    words = r"trunk loaded_trunks\.Odd: unknown key 'preprocessing\.means'.*Did you mean 'mean'"
    with pytest.raises(UsageError, match=words):
        preprocessing(model("Odd"), 3)
    for value, said in (({"std": 0}, "greater than 0"), ({"mean": "a"}, "preprocessing.mean")):
        module.preprocessing = value  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match=said):
            preprocessing(model("Random"), 3)


def test_check_says_what_trunks_get_that_say_nothing(images: ImageSet) -> None:
    from reality_check.config import load_experiment
    from reality_check.data.sample_set import TensorSet
    from reality_check.data.tensors import Tensors
    from reality_check.launch.check import assumptions

    def said(trunk: str, samples: Any = images, **changes: Any) -> list[str]:
        experiment = load_experiment("quickstart")
        given = {"name": "x", "trunk": trunk, **changes}
        experiment = experiment.model_copy(update={"model": Model.model_validate(given)})
        return assumptions(experiment, samples)

    (sentence,) = said("loaded_trunks.Random")
    assert (
        "Random declares no preprocessing, so it gets (x - 0.5) / 0.5 of pixels x from" in sentence
    )
    assert "preprocessing = {'mean': ..., 'std': ...} in its class" in sentence
    vectors = TensorSet(Tensors.from_array(np.ones((4, 2))), np.arange(4) % 2, ("a", "b"), "v")
    for silent in (
        said("loaded_trunks.Pretrained"),
        said("conv4"),
        said("loaded_trunks.Random", preprocessing={"mean": 0.4}),
        said("loaded_trunks.Random", vectors),
    ):
        assert silent == []
