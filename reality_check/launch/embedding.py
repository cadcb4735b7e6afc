"""Computes the features of a data set with a frozen trunk, and writes them into a folder."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from pml_extensions.functional import allow_tf32
from reality_check.config.differences import without_folders
from reality_check.config.messages import validate
from reality_check.config.model import Model
from reality_check.config.training import Augment
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.data.tensors import TensorShape
from reality_check.models import TRUNKS, input_channels
from reality_check.models.network import Network, autocast, build_network
from reality_check.models.partly_frozen import ResumedTrunk, check_module, output_of
from reality_check.models.pipeline import Pipeline, build_pipeline, input_shape
from reality_check.models.trunk_building import check_token_ids, origin_mark, state_digest
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.files import atomic_write
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress

#: The file in which an unfinished call records its progress.
_PROGRESS = "progress.json"
#: Seconds between two records of the progress; a killed call repeats at most this much work.
_RECORD_SECONDS = 10.0
_CPU = torch.device("cpu")
#: The keys of a model that decide what its trunk computes.
_TRUNK_KEYS = ("trunk", "arguments", "weights", "last_stride", "remove_last_bn_relu")


@dataclass(frozen=True)
class Embedding:
    """The settings by which samples are embedded.

    Attributes:
        model: the trunk with its weights and pooling; the embedder is not used.
        crop_size: side of the square centre crops in pixels; ``None`` keeps the size of the images.
        resize: new length of the short side before the crop; ``None`` resizes only images that are
            smaller than the crop.
        batch_size: number of samples per forward pass.
        device: device of the computation.
        autocast: precision of the trunk.
        dtype: type of the vectors in the file.
        until: full name of the module of the trunk whose outputs are written; ``None`` for vectors,
            behind trunk and pooling.
    """

    model: Model
    crop_size: int | None = None
    resize: int | None = None
    batch_size: int = 64
    device: torch.device = _CPU
    autocast: Literal["none", "bf16", "fp16"] = "none"
    dtype: Literal["float16", "float32"] = "float32"
    until: str | None = None


def embed_to_folder(
    data: SampleSet,
    settings: Embedding,
    out: Path,
    log: Callable[[str], None] = lambda text: None,
    source: str | None = None,
) -> tuple[int, ...]:
    """Write the features of all samples of a data set, continuing where a stopped call ended.

    Args:
        data: the data set, of images or tensors.
        settings: the trunk, the preprocessing and the precision.
        out: the folder to create, which ``dataset: FOLDER`` reads. It contains ``.npy`` files: x
            (N, F), or a module's outputs (N, ...), y, class_names, names, the data set's own split,
            and ``origin``, a sentence that says where the features come from.
        log: called with messages about the progress.
        source: a description by which the data set can be opened again to show its images, see
            :func:`reality_check.data.source_images.dataset_json`.

    Returns:
        The shape of x.

    Raises:
        UsageError: the trunk does not fit the samples or returns NaN, or ``out`` exists with other
            content.
    """
    if out.suffix == ".npz":
        raise UsageError(
            f"--out is {str(out)!r}, but features are written into a folder of .npy files; write "
            f"{str(out.with_suffix(''))!r}."
        )
    if data.num_classes < 2:
        raise UsageError(
            f"All {len(data)} {data.noun}s of {data.name!r} are of one class, "
            f"{data.class_names[0]!r}; name the folder or file that has the classes in it."
        )
    network, pipeline = _build(data, settings)
    trunk = settings.model.trunk
    if settings.until is not None:
        check_module(network.trunk, settings.until)
    # A trunk of the user may load weights itself.
    if settings.model.weights == "none" and (trunk in TRUNKS or ":" in trunk):
        log(f"The weights of {trunk} are random (weights: none)")
    recipe = _recipe(data, settings, network)
    partial, lock = out.with_name(f"{out.name}.partial"), out.with_name(f".{out.name}.lock")
    out.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock, "embeds the same", log):
        if out.exists():
            return _check_existing(out, recipe)
        partial.mkdir(exist_ok=True)
        vectors = _embed_all(data, settings, network, pipeline, partial, recipe, log)
        _write_other_arrays(data, partial, recipe, source)
        (partial / _PROGRESS).unlink(missing_ok=True)
        partial.rename(out)
    return vectors.shape


def _build(data: SampleSet, settings: Embedding) -> tuple[Network, Pipeline]:
    """Return the network and the pipeline that embed the samples."""
    options = _options(data, settings)
    check_token_ids(settings.model, data)
    embedding_size = 1  # the embedder is not used
    network = build_network(settings.model, input_shape(data, options), embedding_size, seed=0)
    pipeline = build_pipeline(data, settings.model, options, settings.device, settings.batch_size)
    return network.to(settings.device).eval(), pipeline


def _options(data: SampleSet, settings: Embedding) -> Augment:
    """Return the crop of the samples."""
    crops = {"crop_size": settings.crop_size, "resize": settings.resize}
    return validate(Augment, crops if isinstance(data, ImageSet) else {}, "embed")


def _embed_all(
    data: SampleSet,
    settings: Embedding,
    network: Network,
    pipeline: Pipeline,
    folder: Path,
    recipe: dict[str, Any],
    log: Callable[[str], None],
) -> np.ndarray:
    """Compute the features into a memory-mapped file, continuing after those that are in it."""
    file, progress_file = folder / "x.npy", folder / _PROGRESS
    done = _embedded_count(file, progress_file, recipe)
    if done:
        log(f"Continuing after {done:,} of {len(data):,} samples")
    vectors = np.lib.format.open_memmap(file, "r+") if done else None
    title = f"Embedding {data.name!r} with {settings.model.trunk}"
    recorded_at = time.monotonic()
    with (
        torch.inference_mode(),
        autocast(settings.device, settings.autocast),
        allow_tf32(settings.device, False),
        progress(title, len(data), done) as advance,
    ):
        for batch in pipeline.evaluation_batches(np.arange(done, len(data))):
            if settings.until is None:
                features = network.features(batch).float()
            else:
                features = output_of(network.trunk, settings.until, batch).float()
            _check_finite(features, done, settings)
            if vectors is None:  # only now the shape of the features is known
                shape = (len(data), *features.shape[1:])
                if settings.until is not None:
                    _check_resumed(settings, network, batch, features)
                    size = math.prod(shape) * np.dtype(settings.dtype).itemsize
                    log(f"The outputs of {settings.until} take {size / 1e9:.3g} GB")
                vectors = np.lib.format.open_memmap(file, "w+", np.dtype(settings.dtype), shape)
            vectors[done : done + len(features)] = features.cpu().numpy()
            done += len(features)
            advance(len(features))
            if time.monotonic() - recorded_at >= _RECORD_SECONDS:
                vectors.flush()
                atomic_write(progress_file, json.dumps({**recipe, "done": done}))
                recorded_at = time.monotonic()
    assert vectors is not None
    vectors.flush()
    return vectors


def _check_resumed(
    settings: Embedding, network: Network, batch: torch.Tensor, stored: torch.Tensor
) -> None:
    """Make sure that the trunk gives the same outputs when it resumes from stored ones."""
    assert settings.until is not None
    with torch.inference_mode(False):  # so that gradients can be computed
        example = torch.zeros(1, *batch.shape[1:], dtype=batch.dtype, device=batch.device)
        trunk = ResumedTrunk(copy.deepcopy(network.trunk), settings.until, example).eval()
    words = (
        f"{settings.model.trunk} cannot be resumed after {settings.until}: what follows needs more "
        "than its output; name a later module"
    )
    expected = network.trunk(batch).float()
    with users_code(words):
        resumed = trunk(stored).float()
    limit = 1e-4 if settings.autocast == "none" else 1e-2
    if (
        expected.shape != resumed.shape
        or float((resumed - expected).norm() / expected.norm()) > limit
    ):
        raise UsageError(f"{words}.")


def _check_finite(features: torch.Tensor, first: int, settings: Embedding) -> None:
    """Refuse features that are not finite; ``first`` is the number of the first sample."""
    finite = torch.isfinite(features.to(getattr(torch, settings.dtype))).all(dim=1)
    if not bool(finite.all()):
        raise UsageError(
            f"The features of sample {first + int((~finite).nonzero()[0])} by "
            f"{settings.model.trunk} are NaN, infinite or too large for {settings.dtype}; check "
            "its weights, or write --autocast none or --dtype float32."
        )


def _embedded_count(file: Path, progress_file: Path, recipe: dict[str, Any]) -> int:
    """Return the number of samples that a stopped call embedded with the same recipe, or 0."""
    try:
        recorded = json.loads(progress_file.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return 0
    done = int(recorded.pop("done"))
    return done if recorded == recipe and file.exists() else 0


def _recipe(data: SampleSet, settings: Embedding, network: Network) -> dict[str, Any]:
    """Return everything that the features depend on, as plain data."""
    state = state_digest(network.trunk)
    recipe = {
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "trunk": settings.model.trunk,
        "arguments": settings.model.arguments,
        "weights": settings.model.weights,
        "state": state,
        "head": settings.model.describe_head(),
        "preprocessing": settings.model.preprocessing.plain(exclude_none=True),
        "crop_size": settings.crop_size,
        "resize": settings.resize,
        "autocast": settings.autocast,
        "dtype": settings.dtype,
    }
    if settings.until is not None:
        recipe["model"] = settings.model.plain(include=set(_TRUNK_KEYS)) | {
            "frozen": settings.until,
            "stored": {"images": _trunk_input(data, settings), "state": state},
        }
    return recipe


def _trunk_input(data: SampleSet, settings: Embedding) -> list[int]:
    """Return height, width and channels of the images that enter the trunk."""
    shape = input_shape(data, _options(data, settings))
    if isinstance(shape, TensorShape):
        raise UsageError(f"--until is for images, but the samples of {data.name!r} are {shape}.")
    height, width, channels = shape
    return [height, width, input_channels(settings.model, channels)]


def _check_existing(out: Path, recipe: dict[str, Any]) -> tuple[int, ...]:
    """Return the shape (N, ...) of the features that an earlier call wrote with the same recipe.

    Raises:
        UsageError: the folder has other content.
    """
    try:
        earlier = json.loads(str(np.load(out / "made_of.npy")))
        shape: tuple[int, ...] = np.load(out / "x.npy", "r").shape
    except (OSError, ValueError):
        raise UsageError(
            f"{out} exists and is no folder of reality-check embed; write another --out."
        ) from None
    if earlier != recipe:
        changed = ", ".join(key for key, value in recipe.items() if earlier.get(key) != value)
        raise UsageError(
            f"{out} holds features that were made in another way ({changed} differ); write another "
            "--out, or delete it."
        )
    return shape


def _write_other_arrays(
    data: SampleSet, folder: Path, recipe: dict[str, Any], source: str | None
) -> None:
    """Write all arrays other than the features."""
    crop = "" if recipe["crop_size"] is None else f", crops of {recipe['crop_size']} pixels"
    until = recipe.get("model", {}).get("frozen")
    head = f", {recipe['head']}" if until is None else ""
    shown = without_folders(recipe)
    origin = (
        f"{recipe['data']} through {shown['trunk']}, weights {shown['weights']} "
        f"{origin_mark(until, recipe['state'])}{head}{crop}"
    )
    arrays: dict[str, Any] = {
        "y": data.labels,
        "class_names": data.class_names,
        "origin": origin,
        "made_of": json.dumps(recipe),
        "names": None if data.sample_names is None else data.sample_names.astype(str),
        "test_classes": data.test_classes,
        "queries": data.queries,
        "source": source if isinstance(data, ImageSet) else None,
    }
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", np.asarray(array))
