"""The gallery of a method: a few test images and their nearest neighbours, on request.

The worker that scores the first reproduction draws it, because only it has images and embeddings at
hand; the report copies the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from pml_extensions.evaluation import nearest_neighbours, retrieval_gallery, save_gallery
from reality_check.data.imageset import ImageSet

#: Neighbours of each query, fewer where there are fewer images.
NEIGHBOURS = 8

#: Name of the file in the folder of the first reproduction.
GALLERY_FILE = "gallery.png"


def gallery_queries(labels: np.ndarray, count: int) -> np.ndarray:
    """The first image of each of ``count`` evenly spaced classes: the same for all methods.

    Args:
        labels: of the test images, (N,).
        count: how many; all classes where there are fewer.
    """
    _, first = np.unique(labels, return_index=True)
    places = np.linspace(0, len(first) - 1, min(count, len(first))).round().astype(int)
    return np.asarray(first[places])


def draw_gallery(
    path: Path, test: ImageSet, embeddings: Tensor, normalize: bool, count: int
) -> None:
    """Write the nearest neighbours of some test images as a PNG file.

    Args:
        path: the file.
        test: the test classes.
        embeddings: of its images, (N, D).
        normalize: whether neighbours are those on unit vectors.
        count: number of queries.
    """
    queries = gallery_queries(test.labels, count)
    depth = min(NEIGHBOURS, len(test) - 1)
    neighbours = nearest_neighbours(embeddings, queries, depth, normalize=normalize)
    used = np.unique(np.concatenate([queries, neighbours.ravel()]))
    images = np.ascontiguousarray(test.images[used])  # of a memory-mapped file, only these
    grid = retrieval_gallery(
        images,
        np.searchsorted(used, neighbours),
        test.labels[used],
        np.searchsorted(used, queries),
    )
    save_gallery(path, grid)
