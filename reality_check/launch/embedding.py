"""Computes the features of a data set with a frozen trunk, and writes them into a folder."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from pml_extensions.functional import allow_tf32
from reality_check.config.messages import validate
from reality_check.config.model import Model
from reality_check.config.training import Augment
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.models import TRUNKS
from reality_check.models.network import Network, autocast, build_network
from reality_check.models.pipeline import Pipeline, build_pipeline, input_shape
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress

#: The file in which an unfinished call records its progress.
_PROGRESS = "progress.json"
#: Seconds between two records of the progress; a killed call repeats at most this much work.
_RECORD_SECONDS = 10.0
_CPU = torch.device("cpu")


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
    """

    model: Model
    crop_size: int | None = None
    resize: int | None = None
    batch_size: int = 64
    device: torch.device = _CPU
    autocast: Literal["none", "bf16", "fp16"] = "none"
    dtype: Literal["float16", "float32"] = "float32"


def embed_to_folder(
    data: SampleSet,
    settings: Embedding,
    out: Path,
    log: Callable[[str], None] = lambda text: None,
    source: str | None = None,
) -> tuple[int, int]:
    """Write the features of all samples of a data set, continuing where a stopped call ended.

    Args:
        data: the data set, of images or tensors.
        settings: the trunk, the preprocessing and the precision.
        out: the folder to create, which ``dataset: FOLDER`` reads. It contains ``.npy`` files: x
            (N, F), y, class_names, names, the data set's own split, and ``origin``, a sentence that
            says where the features come from.
        log: called with messages about the progress.
        source: a description by which the data set can be opened again to show its images, see
            :func:`reality_check.data.source_images.dataset_json`.

    Returns:
        The number of samples N and of features F.

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
    return vectors.shape[0], vectors.shape[1]


def _build(data: SampleSet, settings: Embedding) -> tuple[Network, Pipeline]:
    """Return the network and the pipeline that embed the samples."""
    crops = (
        {"crop_size": settings.crop_size, "resize": settings.resize}
        if isinstance(data, ImageSet)
        else {}
    )
    options = validate(Augment, crops, "embed")
    embedding_size = 1  # the embedder is not used
    network = build_network(settings.model, input_shape(data, options), embedding_size, seed=0)
    pipeline = build_pipeline(data, settings.model, options, settings.device, settings.batch_size)
    return network.to(settings.device).eval(), pipeline


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
            features = network.features(batch).float()
            _check_finite(features, done, settings)
            if vectors is None:  # only now the width of the features is known
                shape = (len(data), features.shape[1])
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
    digest = hashlib.sha256()
    for name, value in sorted(network.trunk.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return {
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "trunk": settings.model.trunk,
        "arguments": settings.model.arguments,
        "weights": settings.model.weights,
        "state": digest.hexdigest(),
        "head": settings.model.describe_head(),
        "preprocessing": settings.model.preprocessing.plain(exclude_none=True),
        "crop_size": settings.crop_size,
        "resize": settings.resize,
        "autocast": settings.autocast,
        "dtype": settings.dtype,
    }


def _check_existing(out: Path, recipe: dict[str, Any]) -> tuple[int, int]:
    """Return the shape (N, F) of the features that an earlier call wrote with the same recipe.

    Raises:
        UsageError: the folder has other content.
    """
    try:
        earlier = json.loads(str(np.load(out / "made_of.npy")))
        samples, width = np.load(out / "x.npy", "r").shape
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
    return samples, width


def _write_other_arrays(
    data: SampleSet, folder: Path, recipe: dict[str, Any], source: str | None
) -> None:
    """Write all arrays other than the features."""
    crop = "" if recipe["crop_size"] is None else f", crops of {recipe['crop_size']} pixels"
    origin = (
        f"{recipe['data']} through {recipe['trunk']}, weights {recipe['weights']} (sha256 "
        f"{recipe['state'][:12]}), {recipe['head']}{crop}"
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
