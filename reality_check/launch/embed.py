"""The frozen features of a data set: each image or tensor through a trunk once, into one file."""

from __future__ import annotations

import hashlib
import json
import shutil
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
from reality_check.data.readers.tensor_files import write_npz
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.models import TRUNKS
from reality_check.models.network import Network, autocast, build_network
from reality_check.models.pipeline import Pipeline, build_pipeline, input_shape
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.locks import locked
from reality_check.utils.progress_bar import progress

#: Seconds between two marks of how far it is: what a call that was killed does again.
_MARK_SECONDS = 10.0
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Embedding:
    """How samples become vectors.

    Attributes:
        model: trunk, weights and pooling; its embedder is not used.
        crop_size: side of the square centre crops, in pixels; None keeps the size of the images.
        resize: new length of the short side before the crop; None: as it is, or that of the crop
            where the image is smaller.
        batch_size: samples at once.
        device: where to compute.
        autocast: precision of the trunk.
        dtype: of the vectors in the file.
    """

    model: Model
    crop_size: int | None = None
    resize: int | None = None
    batch_size: int = 64
    device: torch.device = _CPU
    autocast: Literal["none", "bf16", "fp16"] = "none"
    dtype: Literal["float16", "float32"] = "float32"


def embed_to_file(
    data: SampleSet,
    how: Embedding,
    out: Path,
    log: Callable[[str], None] = lambda text: None,
    source: str | None = None,
) -> tuple[int, int]:
    """Write the features of all samples of a data set; a call that was stopped is continued.

    Args:
        data: images or tensors.
        how: by which trunk.
        out: an ``.npz`` file with x (N, F), y, class_names, names, the data set's own split and
            ``origin``, a sentence on where it comes from. ``dataset: FILE`` reads it.
        log: gets sentences on what is being done.
        source: how the data set can be opened again to show its images, see
            :func:`reality_check.data.source_images.described`.

    Returns:
        N and F.

    Raises:
        UsageError: the trunk does not fit the samples or gives NaN, or the file is there and holds
            something else.
    """
    if out.suffix != ".npz":
        raise UsageError(f"--out is {str(out)!r}, but features are written as .npz; write that.")
    if data.num_classes < 2:
        raise UsageError(
            f"All {len(data)} {data.noun}s of {data.name!r} are of one class, "
            f"{data.class_names[0]!r}; name the folder or file that has the classes in it."
        )
    network, pipeline = _prepare(data, how)
    if how.model.weights == "none" and (how.model.trunk in TRUNKS or ":" in how.model.trunk):
        log(f"The weights of {how.model.trunk} are random (weights: none)")
    made_of = _identity(data, how, network)
    if out.exists():
        return _already_there(out, made_of)
    work = out.with_name(f"{out.name}.partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    with locked(work / "lock", lambda holder: log(f"Waiting for {holder}, which embeds the same")):
        vectors = _embed_all(data, how, network, pipeline, work, made_of, log)
        _write(data, vectors, out, made_of, source)
    shutil.rmtree(work)
    return vectors.shape[0], vectors.shape[1]


def _prepare(data: SampleSet, how: Embedding) -> tuple[Network, Pipeline]:
    crops = {"crop_size": how.crop_size, "resize": how.resize} if isinstance(data, ImageSet) else {}
    options = validate(Augment, crops, "embed")
    network = build_network(how.model, input_shape(data, options), 1, seed=0)
    pipeline = build_pipeline(data, how.model, options, how.device, how.batch_size)
    return network.to(how.device).eval(), pipeline


def _embed_all(
    data: SampleSet,
    how: Embedding,
    network: Network,
    pipeline: Pipeline,
    work: Path,
    made_of: dict[str, Any],
    log: Callable[[str], None],
) -> np.ndarray:
    """The features, memory-mapped in the working folder, from where it has been left on."""
    file, mark = work / "x.npy", work / "progress.json"
    done = _done(file, mark, made_of)
    if done:
        log(f"Continuing after {done:,} of {len(data):,} samples")
    vectors = np.lib.format.open_memmap(file, "r+") if done else None
    what = f"Embedding {data.name!r} with {how.model.trunk}"
    marked = time.monotonic()
    with (
        torch.inference_mode(),
        autocast(how.device, how.autocast),
        allow_tf32(how.device, False),
        progress(what, len(data), done) as advance,
    ):
        for batch in pipeline.evaluation_batches(np.arange(done, len(data))):
            features = network.features(batch).float()
            _check(features, done, how)
            if vectors is None:
                shape = (len(data), features.shape[1])
                vectors = np.lib.format.open_memmap(file, "w+", np.dtype(how.dtype), shape)
            vectors[done : done + len(features)] = features.cpu().numpy()
            done += len(features)
            advance(len(features))
            if time.monotonic() - marked >= _MARK_SECONDS:
                vectors.flush()
                atomic_write(mark, json.dumps({**made_of, "done": done}))
                marked = time.monotonic()
    assert vectors is not None
    return vectors


def _check(features: torch.Tensor, first: int, how: Embedding) -> None:
    finite = torch.isfinite(features).all(dim=1)
    beyond = how.dtype == "float16" and bool((features.abs() > 65504).any())
    if beyond or not bool(finite.all()):
        row = first + int((~finite).nonzero()[0]) if not beyond else first
        why = "are beyond float16; write --dtype float32" if beyond else "are NaN or infinite"
        raise UsageError(
            f"The features of sample {row} and others by {how.model.trunk} {why}"
            + ("." if beyond else "; check its weights, or write --autocast none.")
        )


def _done(file: Path, mark: Path, made_of: dict[str, Any]) -> int:
    """How many samples a stopped call has embedded in the same way."""
    try:
        there = json.loads(mark.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return 0
    done = int(there.pop("done"))
    return done if there == made_of and file.exists() else 0


def _identity(data: SampleSet, how: Embedding, network: Network) -> dict[str, Any]:
    """All that the vectors depend on, as plain data."""
    digest = hashlib.sha256()
    for name, value in sorted(network.trunk.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().numpy().tobytes())
    return {
        "data": data.name,
        "data_fingerprint": data.fingerprint(),
        "trunk": how.model.trunk,
        "arguments": how.model.arguments,
        "weights": how.model.weights,
        "state": digest.hexdigest(),
        "head": how.model.describe_head(),
        "preprocessing": how.model.preprocessing.plain(exclude_none=True),
        "crop_size": how.crop_size,
        "resize": how.resize,
        "autocast": how.autocast,
        "dtype": how.dtype,
    }


def _already_there(out: Path, made_of: dict[str, Any]) -> tuple[int, int]:
    with np.load(out, allow_pickle=False) as arrays:
        there = json.loads(str(arrays["made_of"])) if "made_of" in arrays.files else None
        samples, width = arrays["x"].shape if there == made_of else (0, 0)
    if there is None:
        raise UsageError(f"{out} is there and no file of reality-check embed; write another --out.")
    if there != made_of:
        changed = ", ".join(key for key, value in made_of.items() if there.get(key) != value)
        raise UsageError(
            f"{out} holds features that were made in another way ({changed} differ); write another "
            "--out, or delete it."
        )
    return samples, width


def _write(
    data: SampleSet, vectors: np.ndarray, out: Path, made_of: dict[str, Any], source: str | None
) -> None:
    crop = "" if made_of["crop_size"] is None else f", crops of {made_of['crop_size']} pixels"
    arrays: dict[str, np.ndarray] = {
        "x": vectors,
        "y": data.labels,
        "class_names": np.array(data.class_names),
        "origin": np.array(
            f"{made_of['data']} through {made_of['trunk']}, weights {made_of['weights']} (sha256 "
            f"{made_of['state'][:12]}), {made_of['head']}{crop}"
        ),
        "made_of": np.array(json.dumps(made_of)),
    }
    if data.sample_names is not None:
        arrays["names"] = data.sample_names.astype(str)
    if data.test_classes is not None:
        arrays["test_classes"] = np.array(data.test_classes)
    if data.queries is not None:
        arrays["queries"] = data.queries
    if source is not None and isinstance(data, ImageSet):
        arrays["source"] = np.array(source)
    write_npz(out, arrays)
