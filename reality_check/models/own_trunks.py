"""Trunks of this package and of the user's own code."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.classes import build, find_class
from reality_check.config.messages import validate
from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.tensors import InputShape, TensorShape
from reality_check.models.bn_inception import BNInception
from reality_check.models.conv4 import Conv4, Conv4Pool
from reality_check.models.published_weights import FROM_SCRATCH, PUBLISHED, PublishedWeights
from reality_check.models.weight_files import read_state
from reality_check.utils.errors import UsageError


class Identity(nn.Module):
    """A trunk that returns its input, for vectors."""

    def forward(self, samples: Tensor) -> Tensor:
        return samples


#: Trunks of this package by name.
TRUNKS: dict[str, Callable[..., nn.Module]] = {
    "conv4": Conv4,
    "conv4_pool": Conv4Pool,
    "bn_inception": BNInception,
    "identity": Identity,
}

#: The weights that the metric learning literature used, converted from Caffe by Cadene. The part
#: of the name after the dash is the beginning of the file's SHA-256.
BN_INCEPTION_URL = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"
#: The values are in the order of the trunk's channels: blue, green, red.
_CAFFE = Preprocessing(mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), scale=255.0, bgr=True)


class OwnTrunk:
    """A trunk of :data:`TRUNKS` or a plugin, by its name, or any class, by its import path."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.title = f"trunk {name}"

    @property
    def file_preprocessing(self) -> Preprocessing:
        """What ``preprocessing`` of the user's class, or of its module, declares.

        Raises:
            UsageError: it is a mapping, but not one that ``model.preprocessing`` could be.
        """
        if self.name in TRUNKS:
            return _CAFFE if self.name == "bn_inception" else FROM_SCRATCH
        cls = find_class(self.name, "trunk")
        for owner in (cls, sys.modules.get(cls.__module__)):
            value = getattr(owner, "preprocessing", None)
            if isinstance(value, Mapping):  # and no layer or function of that name
                plain = {"name": "trunk", "preprocessing": value}
                given = validate(Model, plain, self.title).preprocessing
                return Preprocessing(**given.model_dump(exclude_none=True))
        return FROM_SCRATCH

    def build(self, arguments: Mapping[str, Any], shape: InputShape) -> nn.Module:
        cls = TRUNKS[self.name] if self.name in TRUNKS else find_class(self.name, "trunk")
        return build(cls, arguments, self.title, _shape_arguments(shape))

    def published(self, weights: str, arguments: Mapping[str, Any]) -> PublishedWeights:
        if self.name != "bn_inception" or weights not in PUBLISHED:
            allowed = "none, published" if self.name == "bn_inception" else "none"
            raise UsageError(
                f"{self.title} has no weights {weights!r}; write weights: {allowed} or the path of "
                "a file such as /a/folder/weights.pth."
            )
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        name = BN_INCEPTION_URL.rpartition("/")[2]
        return PublishedWeights(
            identity=name,
            preprocessing=_CAFFE,
            url=BN_INCEPTION_URL,
            folder=str(folder),
            load=lambda: read_state(_download_once(folder / name), self.title),
        )


@lru_cache(maxsize=8)
def loaded_weights(name: str, cls: Any, arguments: str, shape: InputShape) -> str | None:
    """Return a hash of a trunk's parameters that are the same whatever the seed; None without any.

    One value everywhere, such as BatchNorm's ones, is how training begins from scratch, and does
    not count. ``cls`` is only part of the key: a module that is imported anew has another one.
    """
    builds = []
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            builds.append(OwnTrunk(name).build(json.loads(arguments), shape))
    first, second = (dict(trunk.named_parameters()) for trunk in builds)
    hashes = [
        (key, hashlib.sha256(value.detach().cpu().float().numpy().tobytes()).hexdigest())
        for key, value in first.items()
        if not nn.parameter.is_lazy(value)
        and torch.equal(value, second[key])
        and value.min() < value.max()
    ]
    return f"sha256:{hashlib.sha256(repr(hashes).encode()).hexdigest()}" if hashes else None


def _shape_arguments(shape: InputShape) -> dict[str, Any]:
    """Return the arguments about the input that a trunk's constructor may have."""
    if not isinstance(shape, TensorShape):
        return {"channels": shape[2]}
    arguments: dict[str, Any] = {"input_shape": shape.sizes}
    if len(shape.sizes) == 1:
        arguments["in_features"] = shape.sizes[0]
    if len(shape.sizes) == 3:
        arguments["channels"] = shape.sizes[0]
    return arguments


def _download_once(file: Path) -> Path:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        hash_prefix = file.stem.rpartition("-")[2]  # the end of the name, see BN_INCEPTION_URL
        torch.hub.download_url_to_file(
            BN_INCEPTION_URL, str(file), hash_prefix=hash_prefix, progress=sys.stderr.isatty()
        )
    return file
