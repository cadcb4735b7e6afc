"""Maps of test images, on request: a t-SNE of what one reproduction of each method embeds.

``METHOD/map.npz`` holds float32 ``points`` (N, 2), and int32 ``labels`` and ``images`` (N,), the
class and the place among the test images of each; ``class_names`` (C,); and ``about``, a JSON text
that says of which stage and reproduction it is, and with which perplexity it was made.

Reports only read that file: making it needs the images and the kept networks again, and time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reality_check.evaluation.query_scores import unpacked
from reality_check.results import EmbeddingMap
from reality_check.utils.errors import UsageError
from reality_check.utils.spread import evenly_spread

if TYPE_CHECKING:  # a report reads maps without torch
    import torch

    from reality_check.data.sample_set import SampleSet

MAP_FILE = "map.npz"

#: Images on a map, fewer where there are fewer; more take long and are too dense to read.
IMAGES = 2000
PERPLEXITY = 30.0
_SEED = 0


def sample_rows(test: SampleSet, count: int = IMAGES) -> NDArray[np.int64]:
    """Rows of test images, spread evenly over the classes; all of them where there are no more."""
    ordered = np.argsort(test.labels, kind="stable")
    return np.sort(ordered[evenly_spread(len(ordered), count)]).astype(np.int64)


def tsne(embeddings: torch.Tensor) -> NDArray[np.float32]:
    """Place embeddings (N, D) on a plane: float32 (N, 2), the same for the same input.

    t-SNE (van der Maaten and Hinton 2008) of Euclidean distances, started from the principal
    components. The perplexity is 30, or a third of the number of other points where that is less.
    """
    from sklearn.manifold import TSNE

    vectors = embeddings.double().numpy()
    if len(vectors) < 3:
        raise UsageError(f"a map needs at least 3 test images, but there are {len(vectors)}.")
    # scikit-learn would divide by a standard deviation of 0 in float32, and the process would die.
    if vectors.std(axis=0).max() < 1e-18:
        return np.zeros((len(vectors), 2), np.float32)
    method = TSNE(
        n_components=2,
        perplexity=perplexity(len(vectors)),
        init="pca" if vectors.shape[1] > 1 else "random",
        learning_rate="auto",
        random_state=_SEED,
        n_jobs=1,
    )
    return np.asarray(method.fit_transform(vectors), dtype=np.float32)


def perplexity(count: int) -> float:
    """The perplexity for so many points."""
    return min(PERPLEXITY, (count - 1) / 3)


def map_path(out_dir: Path, method: str) -> Path:
    """Where the map of a method is kept."""
    return out_dir / method / MAP_FILE


def read_map(path: Path) -> EmbeddingMap | None:
    """The map in a file; ``None`` where there is none, or a damaged one."""
    arrays = unpacked(path)
    if not {"points", "labels", "class_names", "about"} <= set(arrays):
        return None
    about = json.loads(str(arrays["about"]))
    return EmbeddingMap(
        points=arrays["points"],
        labels=arrays["labels"].astype(np.int64),
        class_names=tuple(map(str, arrays["class_names"])),
        stage=about["stage"],
        reproduction=about["reproduction"],
        perplexity=about["perplexity"],
    )
