"""The scores of every test query, stored with each reproduction.

Paired comparisons and bootstraps over the test classes read them, so they need no further training.

``METHOD/STAGE/NUMBER/queries.npz`` contains a float32 array (3, Q) for each category: MAP@R, RP
and P@1 of each test query in the method's own geometry, in the order of ``test_queries.npz``. The
score of the aggregate is the mean over the folds. A query takes 36 bytes per reproduction before
compression (24 for aggregate and ensemble, 12 for complete): 0.2 MB for the 5,924 test images of
CUB-200-2011.

``test_queries.npz`` in the output folder is common to all reproductions: ``labels`` int32 (Q,),
``images`` int32 (Q,) (the query's index among the test images) and ``class_names`` (C,).

Queries without a reference of their class have no scores and are in neither file.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reality_check.config.metrics import METRICS, Stage, stage_of
from reality_check.results import QueryScores
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

if TYPE_CHECKING:  # a report reads scores without torch
    from reality_check.data.sample_set import SampleSet
    from reality_check.evaluation.scoring import Metrics

#: Name of the file of test queries in the output folder.
QUERIES_FILE = "test_queries.npz"

#: The mean over the queries may differ from the recorded metric by this much (0.02 points), since
#: devices round differently. Two trainings differ by more.
TOLERANCE = 2e-4

_ZIP_ERRORS = zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error

#: The recorded metrics by method, category and reproduction.
Recorded = Mapping[tuple[str, str, int], Mapping[str, float]]


def write_test_queries(out_dir: Path, test: SampleSet) -> None:
    """Write which test images are queries, and their classes, unless the file is up to date."""
    path = own_path(out_dir, QUERIES_FILE)
    images = _scored_queries(test)
    content = packed(
        {
            "labels": test.labels[images].astype(np.int32),
            "images": images.astype(np.int32),
            "class_names": np.array(test.class_names, dtype=np.str_),
        }
    )
    if not path.exists() or path.read_bytes() != content:
        atomic_write(path, content)


def write_query_scores(path: Path, scores: Mapping[str, Metrics]) -> None:
    """Write the scores of every query of one reproduction."""
    arrays = {}
    for category, metrics in scores.items():
        values = np.stack([metrics.per_query[name] for name in METRICS])
        # Queries without a reference, whose scores are NaN, are left out.
        arrays[category] = values[:, ~np.isnan(values[0])].astype(np.float32)
    atomic_write(path, packed(arrays))


def read_query_scores(
    out_dir: Path, path_of: Callable[[str, Stage, int], Path], recorded: Recorded
) -> QueryScores | None:
    """Return the query scores of an output folder, whose files are read on demand.

    Args:
        path_of: returns the file with the scores of a method, stage and reproduction.
        recorded: the metrics of the reproductions. Scores whose means differ from them belong to
            another training and count as missing.

    Returns:
        The scores, or ``None`` if the folder does not record which images are queries.
    """
    arrays = unpacked(out_dir / QUERIES_FILE)
    if not {"labels", "class_names"} <= set(arrays):
        return None
    labels = arrays["labels"].astype(np.int64)

    def load(method: str, category: str, reproduction: int) -> NDArray[np.float64] | None:
        """Return the scores of a reproduction, (3, Q), or ``None`` if they are missing."""
        means = recorded.get((method, category, reproduction), {})
        if not set(METRICS) <= set(means):
            return None
        if not any(means[name] for name in METRICS):
            return np.zeros((len(METRICS), len(labels)))  # the training diverged: all scores are 0
        scores = unpacked(path_of(method, stage_of(category), reproduction)).get(category)
        if scores is None or scores.shape != (len(METRICS), len(labels)):
            return None
        values = scores.astype(np.float64)
        expected = [means[name] for name in METRICS]
        agree = np.allclose(values.mean(axis=1), expected, rtol=0, atol=TOLERANCE)
        return values if agree else None

    return QueryScores(labels, tuple(map(str, arrays["class_names"])), load)


def _scored_queries(test: SampleSet) -> NDArray[np.int64]:
    """Return the indices of the test images that are queries with a reference of their class."""
    if test.queries is None:  # every image is a query, and a reference of the others
        return np.flatnonzero(np.bincount(test.labels)[test.labels] > 1)
    gallery = np.unique(test.labels[~test.queries])
    return np.flatnonzero(test.queries & np.isin(test.labels, gallery))


def packed(arrays: Mapping[str, NDArray]) -> bytes:
    """Return the content of a compressed ``.npz`` file with the arrays."""
    stream = io.BytesIO()
    # allow_pickle is not passed: older NumPy would store it as an array of that name.
    named: dict[str, Any] = dict(arrays)
    np.savez_compressed(stream, **named)
    return stream.getvalue()


def unpacked(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a file by name; empty if the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, MemoryError, *_ZIP_ERRORS):
        return {}
