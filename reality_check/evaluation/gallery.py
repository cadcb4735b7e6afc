"""The gallery of a method: a few test images and their nearest neighbours, on request.

The worker that scores the first reproduction draws the gallery, because only that worker has both
the images and the embeddings; the report copies the file.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from pml_extensions.evaluation import nearest_neighbours, retrieval_gallery, save_gallery
from reality_check.data.images import Images
from reality_check.data.sample_set import SampleSet
from reality_check.utils.spread import evenly_spread

#: Number of neighbours that are shown for each query; fewer if there are fewer images.
NEIGHBOURS = 8

#: Side of a thumbnail in pixels.
_THUMBNAIL_SIZE = 128
#: Characters per line of a card.
_CARD_COLUMNS = 18


def gallery_queries(test: SampleSet, count: int) -> np.ndarray:
    """Return the first image of each of ``count`` evenly spaced classes, the same for all methods.

    If there are fewer classes, all of them are used. If the test set is divided into queries and a
    gallery, the images are queries.
    """
    rows = np.arange(len(test)) if test.queries is None else np.flatnonzero(test.queries)
    _, first = np.unique(test.labels[rows], return_index=True)
    return np.asarray(rows[first[evenly_spread(len(first), count)]])


def draw_gallery(
    path: Path, test: SampleSet, embeddings: Tensor, normalize: bool, count: int
) -> None:
    """Write the nearest neighbours of some test images as a PNG file.

    Args:
        embeddings: the embeddings of the test images, (N, D).
        normalize: whether neighbours are found among unit vectors.
        count: the number of queries to show.
    """
    queries = gallery_queries(test, count)
    neighbours = _neighbours(test, embeddings.cpu(), queries, normalize)
    used = np.unique(np.concatenate([queries, neighbours.ravel()]))
    # Only the used images are drawn, so indices of images become positions in ``used``.
    grid = retrieval_gallery(
        _pictures(test, used),
        np.searchsorted(used, neighbours),
        test.labels[used],
        np.searchsorted(used, queries),
    )
    save_gallery(path, grid)


def _neighbours(
    test: SampleSet, embeddings: Tensor, queries: np.ndarray, normalize: bool
) -> np.ndarray:
    """Return the nearest neighbours of each query, as rows of the test set.

    Neighbours are from the gallery, or from the whole test set if it has no gallery.
    """
    if test.queries is None:
        depth = min(NEIGHBOURS, len(test) - 1)
        return nearest_neighbours(embeddings, queries, depth, normalize=normalize)
    gallery = np.flatnonzero(~test.queries)
    neighbours = nearest_neighbours(
        embeddings, queries, min(NEIGHBOURS, len(gallery)), embeddings[gallery], normalize
    )
    return np.asarray(gallery[neighbours])


def _pictures(test: SampleSet, rows: np.ndarray) -> np.ndarray:
    """Return a picture of each sample: the image, the image it was computed from, or a card."""
    if isinstance(test.samples, Images):
        return thumbnails(test.samples[rows])
    classes = [test.class_names[label] for label in test.labels[rows]]
    images = None if test.source is None else test.source[rows].images(classes)
    if images is not None:
        return thumbnails(images)
    names = [f"row {row}" for row in rows]
    if test.sample_names is not None:
        names = list(map(str, test.sample_names[rows]))
    return np.stack(list(map(_card, names, classes)))


def _card(name: str, class_name: str) -> np.ndarray:
    """Return a square picture with the name and the class of a sample: uint8 (H, W, 3)."""
    card = Image.new("RGB", (_THUMBNAIL_SIZE, _THUMBNAIL_SIZE), "white")
    lines = [
        *textwrap.wrap(name, _CARD_COLUMNS)[:5],
        "",
        *textwrap.wrap(class_name, _CARD_COLUMNS)[:3],
    ]
    font = ImageFont.load_default(12)
    ImageDraw.Draw(card).multiline_text((6, 6), "\n".join(lines), fill="black", font=font)
    return np.asarray(card)


def thumbnails(images: Images) -> np.ndarray:
    """Return images as one array for display: uint8 (N, H, W, C).

    Images of equal size, up to 128 pixels, are returned unchanged; otherwise the centre square of
    each image is resized to 128 pixels.
    """
    if images.shape is not None and max(images.shape[:2]) <= _THUMBNAIL_SIZE:
        return np.ascontiguousarray(images.array())
    pictures = np.empty((len(images), _THUMBNAIL_SIZE, _THUMBNAIL_SIZE, images.channels), np.uint8)
    for row in range(len(images)):
        pixels = images.image(row)
        image = Image.fromarray(pixels[:, :, 0] if images.channels == 1 else pixels)
        fitted = ImageOps.fit(image, (_THUMBNAIL_SIZE, _THUMBNAIL_SIZE))
        pictures[row] = np.asarray(fitted).reshape(pictures.shape[1:])
    return pictures
