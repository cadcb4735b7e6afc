"""Maps of test images, on request: a t-SNE of what one reproduction of each method embeds.

``METHOD/map.npz`` holds float32 ``points`` (N, 2), and int32 ``labels`` and ``images`` (N,), the
class and the place among the test images of each; ``class_names`` (C,); and ``about``, a JSON text
that says of which stage and reproduction it is, and with which perplexity it was made.

Reports only read that file: making it needs the images and the kept networks again, and time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from reality_check.campaign import Campaign
from reality_check.config.schema import Method
from reality_check.data.imageset import ImageSet
from reality_check.errors import UsageError
from reality_check.files import atomic_write
from reality_check.query_scores import packed, unpacked
from reality_check.results import EmbeddingMap
from reality_check.scoring import concatenate

MAP_FILE = "map.npz"

#: Images on a map, fewer where there are fewer; more take long and cannot be told apart.
IMAGES = 2000
PERPLEXITY = 30.0
_SEED = 0


def draw_maps(campaign: Campaign, tell: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write the map of every method that has a complete, sound reproduction.

    Args:
        campaign: of the output folder; the data set and the kept networks must be there.
        tell: called with a line for each map.

    Returns:
        A sentence for each method without one.

    Raises:
        UsageError: the images are not those of the run.
    """
    _check_images(campaign)
    rows, problems = sample_rows(campaign.test_set), []
    for method in campaign.experiment.methods:
        found = _sound_run(campaign, method)
        if found is None:
            problems.append(f"{method.name}: no sound reproduction is complete, so it has no map.")
            continue
        stage, slot = found
        try:
            embeddings = campaign.embed_test_rows(method, stage, slot, rows)
        except FileNotFoundError as error:
            problems.append(f"{method.name}: its network {error} is gone, so it has no map.")
            continue
        vectors = concatenate(embeddings, method.normalize_embeddings)
        _write(campaign, method, stage, slot, rows, tsne(vectors.cpu()))
        tell(f"{method.name}: map of {len(rows)} test images")
    return problems


def _check_images(campaign: Campaign) -> None:
    recorded = campaign.experiment.code.get("dataset")
    if recorded is not None and recorded != campaign.dataset.fingerprint():
        raise UsageError(
            f"the images of {campaign.experiment.dataset.name} are not those that the networks of "
            f"{campaign.out_dir} were trained on, so a map would mislead; name the same images "
            "with dataset.path in its experiment.yaml."
        )


def _sound_run(campaign: Campaign, method: Method) -> tuple[str, int] | None:
    """Stage and number of the first complete reproduction that did not diverge."""
    for unit in campaign.units():
        if unit.method == method.name and unit.stage in ("reproductions", "complete"):
            for slot, trial in sorted(unit.study.complete().items()):
                if not trial.user_attrs.get("diverged"):
                    return unit.stage, slot
    return None


def sample_rows(test: ImageSet, count: int = IMAGES) -> NDArray[np.int64]:
    """Rows of test images, spread evenly over the classes; all of them where there are no more."""
    ordered = np.argsort(test.labels, kind="stable")
    places = np.linspace(0, len(ordered) - 1, min(count, len(ordered))).round().astype(int)
    return np.sort(ordered[places]).astype(np.int64)


def tsne(embeddings: torch.Tensor) -> NDArray[np.float32]:
    """Place embeddings (N, D) on a plane: float32 (N, 2), the same for the same input.

    t-SNE (van der Maaten and Hinton 2008) of Euclidean distances, started from the principal
    components. The perplexity is 30, or a third of the number of other points where that is less.
    """
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]

    vectors = embeddings.double().numpy()
    if len(vectors) < 3:
        raise UsageError(f"a map needs at least 3 test images, but there are {len(vectors)}.")
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


def _write(
    campaign: Campaign,
    method: Method,
    stage: str,
    slot: int,
    rows: NDArray[np.int64],
    points: NDArray[np.float32],
) -> None:
    about = {"stage": stage, "reproduction": slot, "perplexity": perplexity(len(rows))}
    arrays = {
        "points": points,
        "images": rows.astype(np.int32),
        "labels": campaign.test_set.labels[rows].astype(np.int32),
        "class_names": np.array(campaign.test_set.class_names, dtype=np.str_),
        "about": np.array(json.dumps(about)),
    }
    atomic_write(map_path(campaign.out_dir, method.name), packed(arrays))


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
