"""Build the trunk of a model with its weights, and find the preprocessing of its input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from pml_extensions.modules import remove_last_bn_relu
from reality_check.config.classes import find_class
from reality_check.config.model import Model
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import Images
from reality_check.data.sample_set import SampleSet, TensorSet
from reality_check.data.tensors import InputShape, TensorShape
from reality_check.models.conv4 import Conv4, Conv4Pool
from reality_check.models.hf_trunk import HfTrunk
from reality_check.models.own_trunks import OwnTrunk, loaded_weights
from reality_check.models.published_weights import (
    FROM_SCRATCH,
    TrunkSource,
    load_published,
)
from reality_check.models.stem import set_last_stride_to_one
from reality_check.models.timm_trunk import TimmTrunk
from reality_check.models.trunk_names import find_source, is_users
from reality_check.models.weight_files import (
    file_hash,
    file_version,
    fit_state,
    read_json,
    read_state,
)
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path

_FILE_ENDINGS = (".pth", ".pt", ".bin", ".tar", ".ckpt", ".safetensors")


def build_trunk(config: Model, shape: InputShape, pretrained: bool = True) -> nn.Module:
    """Build the trunk of a model; random weights are drawn from torch's global generator.

    Args:
        shape: shape of the trunk's input: (H, W, C) of images, see :func:`input_channels`, or the
            shape of tensors.
        pretrained: False keeps random weights even if the model names others, because a trained
            state is loaded next.

    Returns:
        A module that maps (B, C, H, W) to feature maps (B, F, h, w), or to vectors (B, F).

    Raises:
        UsageError: if the trunk or its weights do not exist or do not fit each other.
    """
    config = _with_folder(config)
    source = find_source(config.trunk)
    trunk = _build(source, config, shape)
    if pretrained and config.weights != "none" and not isinstance(source, HfTrunk):
        arguments = json.dumps(config.arguments, sort_keys=True)  # hashable, for a cached function
        file = _find_file(config.weights, source.title) if _names_file(config.weights) else None
        version = None if file is None else file_version(file)
        state = _read_weights(config.trunk, config.weights, arguments, version)
        fit_state(trunk, state, source.title, f"weights {config.weights}")
    if config.last_stride == 1:
        set_last_stride_to_one(trunk, source.title)
    if config.remove_last_bn_relu != "no":
        _remove_last_bn_relu(trunk, config.remove_last_bn_relu, source.title)
    return trunk


def _with_folder(config: Model) -> Model:
    """Return the model; of transformers, a folder of weights takes the place of the name."""
    if config.trunk.startswith("hf:") and _names_file(config.weights):
        changes = {"trunk": f"hf:{config.weights}", "weights": "published"}
        return config.model_copy(update=changes)
    return config


def _build(source: TrunkSource, config: Model, shape: InputShape) -> nn.Module:
    """Build the trunk with random weights; raise UsageError if it does not take such samples."""
    # The user's trunks may take any samples, as identity does.
    if is_users(config.trunk) or config.trunk == "identity":
        return OwnTrunk(config.trunk).build(config.arguments, shape)
    if isinstance(source, HfTrunk):
        return source.build(config.arguments, shape, config.weights)
    if isinstance(shape, TensorShape):
        if len(shape.sizes) != 3 or not shape.dtype.is_floating_point:
            raise UsageError(
                f"{source.title} takes images, but the samples are {shape}; write trunk: identity "
                "for vectors, or the import path of a trunk of your own for other tensors."
            )
        channels, height, width = shape.sizes
        shape = height, width, channels
    return source.build(config.arguments, shape)


def _remove_last_bn_relu(trunk: nn.Module, mode: Literal["paper", "official"], title: str) -> None:
    if isinstance(trunk, Conv4 | Conv4Pool):
        trunk.remove_last_bn_relu()  # one ReLU per layer, so both modes are the same
        return
    try:
        remove_last_bn_relu(trunk, mode)
    except ValueError as error:
        raise UsageError(f"{title}: {error}") from None


def input_channels(config: Model, image_channels: int) -> int:
    """Return the number of channels of the trunk's input: 3 if a grey image is repeated."""
    values = preprocessing(config, image_channels)
    return max(image_channels, len(values.mean), len(values.std))


def preprocessing(config: Model, channels: int) -> Preprocessing:
    """Return the preprocessing of the trunk's weights; without weights, it scales to -1..1.

    Args:
        config: the model of the experiment; its ``preprocessing`` overrides that of the weights.
        channels: channels of the images, 1 or 3. Trunks with weights for RGB images get a grey
            image repeated three times.

    Raises:
        UsageError: if the trunk or its weights do not exist, or a value is out of range.
    """
    default = _weights_preprocessing(config)
    changes = config.preprocessing.model_dump(exclude_none=True)
    if len(default.mean) == 3:
        changes = {key: _repeat_single(value) for key, value in changes.items()}
    used = replace(default, **changes)
    if channels == 1 and used.bgr and len(used.mean) == len(used.std) == 1:
        raise UsageError("preprocessing: bgr is for images of 3 channels, but these have 1.")
    return used


def _repeat_single(value: object) -> object:
    """Return a tuple of one value as a tuple of three; other values unchanged."""
    return value * 3 if isinstance(value, tuple) and len(value) == 1 else value


def _weights_preprocessing(config: Model) -> Preprocessing:
    if is_users(config.trunk):
        return OwnTrunk(config.trunk).file_preprocessing
    if config.weights == "none":
        return FROM_SCRATCH
    config = _with_folder(config)
    source = find_source(config.trunk)
    if _names_file(config.weights):
        return replace(source.file_preprocessing, **_noted_values(config.weights))
    return source.published(config.weights, config.arguments).preprocessing


def check_token_ids(config: Model, samples: SampleSet) -> None:
    """Raise UsageError if a trunk for texts does not know all token ids of the samples."""
    config = _with_folder(config)
    if config.trunk.startswith("hf:") and isinstance(samples, TensorSet):
        HfTrunk(config.trunk[3:]).check_token_ids(config.arguments, samples.samples.values)


def published_crop_size(config: Model) -> int | None:
    """Return the image size that the published weights were evaluated with, or None if unknown.

    Raises:
        UsageError: if the trunk or its weights do not exist.
    """
    config = _with_folder(config)
    if config.weights == "none" or _names_file(config.weights):
        return None
    return find_source(config.trunk).published(config.weights, config.arguments).crop_size


def weights_fingerprint(config: Model, samples: SampleSet | None = None) -> str | None:
    """Return an identifier of the weights that training starts from.

    Args:
        samples: what trunks of the user are built for, to see whether they load weights themselves;
            None does not build them.

    Returns:
        ``sha256:...`` of a local file, of a model of transformers or of the weights that the user's
        code loads; or the name of the published weights, with the hash in the
        name of their file or the version of timm; None for random weights.

    Raises:
        UsageError: if the trunk, its weights or the file do not exist.
    """
    config = _with_folder(config)
    if config.weights == "none":
        if samples is None or not is_users(config.trunk):
            return None
        if config.stored is not None:
            shape: InputShape = config.stored.images
        elif isinstance(samples.samples, Images):  # of their shape, trunks get the channels
            shape = 0, 0, input_channels(config, samples.samples.channels)
        else:
            shape = samples.samples.input_shape
        arguments = json.dumps(config.filled({}).arguments, default=str)
        cls = find_class(config.trunk, "trunk")
        return loaded_weights(config.trunk, cls, arguments, shape)
    source = find_source(config.trunk)
    if isinstance(source, HfTrunk):
        return source.fingerprint(config.weights)
    if not _names_file(config.weights):
        return source.published(config.weights, config.arguments).identity
    weights = file_hash(_find_file(config.weights, source.title))
    if noted := _noted_values(config.weights):
        weights = hashlib.sha256(f"{weights} {noted}".encode()).hexdigest()
    return f"sha256:{weights}"


def _names_file(weights: str) -> bool:
    """Return whether ``weights`` is a path; names of weights have no slashes or file endings."""
    return any(mark in weights for mark in "/\\~") or weights.endswith(_FILE_ENDINGS)


def _find_file(weights: str, title: str) -> Path:
    """Return the file; of a folder, its only safetensors."""
    file = expand_path(weights)
    if file.is_dir():
        found = sorted(file.glob("*.safetensors"))
        if len(found) != 1:
            raise UsageError(
                f"{title}: the folder {file} has {len(found)} files of safetensors, but one is "
                "needed; fetch it with `hf download NAME --local-dir DIR`, or write the path of a "
                "weight file."
            )
        return found[0]
    if not file.is_file():
        raise UsageError(f"{title}: there is not a weight file {file}; check the path in weights.")
    return file


def _noted_values(weights: str) -> dict[str, Any]:
    """Return the mean and the deviation that timm has written beside weights; {} without any."""
    noted = read_json(expand_path(weights) / "config.json").get("pretrained_cfg", {})
    return {key: tuple(noted[key]) for key in ("mean", "std") if key in noted}


# All folds and trials of an experiment start from the same weights, so a process reads them once.
@lru_cache(maxsize=1)
def _read_weights(
    trunk: str, weights: str, arguments: str, version: tuple[int, int] | None
) -> Mapping[str, Tensor]:
    """Read published weights, or a file if its ``version`` is given.

    If the version changes, the cache of this function does not know the file, so it is read again.
    """
    source = find_source(trunk)
    if version is not None:
        file = _find_file(weights, source.title)
        if isinstance(source, TimmTrunk) and file != expand_path(weights):
            return source.read_folder(file, json.loads(arguments))
        return read_state(file, source.title)
    return load_published(source.published(weights, json.loads(arguments)), source.title)


def state_digest(trunk: nn.Module) -> str:
    """Return the SHA-256 of the weights of a trunk."""
    digest = hashlib.sha256()
    for name, value in sorted(trunk.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def origin_mark(until: str | None, state: str) -> str:
    """Return the words of a data set's origin for outputs of a trunk with such weights."""
    return f"(sha256 {state[:12]}){'' if until is None else f', outputs of {until}'}"
