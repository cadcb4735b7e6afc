"""Galleries: images of queries and their nearest neighbours, with the correct neighbours marked.

"Classification is a Strong Baseline for Deep Metric Learning" (NormSoftmax) has one as figure 1.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pml_extensions._shared.checks import positive_integer
from pml_extensions.evaluation._image_batches import check_images
from pml_extensions.evaluation._inputs import integers, matrix, tensor
from pml_extensions.functional import directions

#: Colours of the frames of queries, correct neighbours and wrong neighbours. Frames of wrong
#: neighbours are also dashed, for readers who cannot distinguish green and red.
QUERY, RIGHT, WRONG = (110, 110, 110), (0, 158, 115), (205, 40, 30)
#: Images with a shorter side than this are enlarged by an integer factor.
SMALLEST_SIDE = 96


@torch.no_grad()
def nearest_neighbours(
    embeddings: Tensor | ArrayLike,
    queries: Tensor | ArrayLike,
    k: int,
    reference: Tensor | ArrayLike | None = None,
    normalize: bool = True,
) -> NDArray[np.int64]:
    """Return the k nearest neighbours of some queries by Euclidean distance, nearest first.

    Distances are computed from differences in float64, which is precise but slow, and memory grows
    with queries x references: use it for some queries, not for a whole data set. References at the
    same distance rank by index.

    Args:
        embeddings: Shape (N, D).
        queries: Indices of the queries in ``embeddings``, shape (Q,).
        k: Number of neighbours.
        reference: References, shape (M, D). None: ``embeddings``, without the query itself, but
            with duplicates of the query.
        normalize: Scale embeddings to unit length first, which ranks by cosine similarity.

    Returns:
        Indices into ``reference`` (without it, into ``embeddings``), shape (Q, k).

    Raises:
        ValueError: A shape is wrong, an embedding is not finite, an index is out of range, or there
            are fewer than k references.
    """
    vectors = matrix(embeddings, "embeddings")
    references = vectors if reference is None else matrix(reference, "reference")
    if references.shape[1] != vectors.shape[1]:
        raise ValueError(
            f"embeddings have {vectors.shape[1]} dimensions, but reference has "
            f"{references.shape[1]}."
        )
    chosen = _checked_indices("queries", queries, len(vectors), ndim=1).to(vectors.device)
    available = len(references) - int(reference is None)
    if positive_integer("k", k) > available:
        raise ValueError(f"k={k}, but a query has only {available} references.")
    x, y = vectors[chosen].double(), references.to(vectors.device, torch.float64)
    if normalize:
        x, y = directions(x), directions(y)
    # A matrix product may give different distances for duplicates.
    distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    if reference is None:
        distances.scatter_(1, chosen.unsqueeze(1), torch.inf)
    # A stable sort keeps equal distances in order of index.
    return distances.argsort(dim=1, stable=True)[:, :k].cpu().numpy()


def retrieval_gallery(
    images: NDArray[np.uint8] | Tensor,
    neighbours: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    queries: Tensor | ArrayLike,
    reference_images: NDArray[np.uint8] | Tensor | None = None,
    reference_labels: Tensor | ArrayLike | None = None,
) -> NDArray[np.uint8]:
    """Draw a row for each query: the query, a gap, and its neighbours, nearest first.

    Frames are grey for queries, solid green for neighbours of the query's class, and dashed red for
    other neighbours.

    Args:
        images: uint8, RGB or grey, shape (N, H, W, 3) or (N, H, W, 1).
        neighbours: Indices of each query's neighbours, shape (Q, K), from ``nearest_neighbours``.
        labels: Integer label of each image, shape (N,).
        queries: Indices of the queries in ``images``, shape (Q,).
        reference_images: Images that ``neighbours`` indexes, with the same H and W; None:
            ``images``.
        reference_labels: Labels of the reference images, shape (M,).

    Returns:
        An RGB image on white, uint8, shape (height, width, 3). Images with a side below 96 pixels
        are enlarged by an integer factor.

    Raises:
        ValueError: A shape is wrong or an index is out of range.
    """
    classes = _checked_labels("images", images, "labels", labels)
    if (reference_images is None) != (reference_labels is None):
        raise ValueError("reference_images and reference_labels must be given together.")
    if reference_images is None or reference_labels is None:
        reference_images, reference_classes = images, classes
    else:
        reference_classes = _checked_labels(
            "reference_images", reference_images, "reference_labels", reference_labels
        )
    if reference_images.shape[1:3] != images.shape[1:3]:
        raise ValueError(
            f"images are of {tuple(images.shape[1:3])} pixels, but reference_images are of "
            f"{tuple(reference_images.shape[1:3])}; resize them to one size."
        )
    rows = _checked_indices("queries", queries, len(images), ndim=1)
    nearest = _checked_indices("neighbours", neighbours, len(reference_images), ndim=2)
    if len(nearest) != len(rows):
        raise ValueError(f"there are {len(rows)} queries, but {len(nearest)} rows of neighbours.")
    is_correct = reference_classes[nearest] == classes[rows].unsqueeze(1)
    return _grid(
        [_picture(images[int(query)]) for query in rows],
        [[_picture(reference_images[int(i)]) for i in row] for row in nearest],
        is_correct.tolist(),
    )


def _grid(
    queries: list[NDArray[np.uint8]],
    neighbours: list[list[NDArray[np.uint8]]],
    is_correct: list[list[bool]],
) -> NDArray[np.uint8]:
    """Arrange pictures of equal shape (H, W, 3) in rows of framed cells on white."""
    line_width = max(2, round(min(queries[0].shape[:2]) / 32))
    cells = [
        [_framed(query, QUERY, line_width, dashed=False)]
        + [
            _framed(picture, RIGHT if correct else WRONG, line_width, dashed=not correct)
            for picture, correct in zip(pictures, flags, strict=True)
        ]
        for query, pictures, flags in zip(queries, neighbours, is_correct, strict=True)
    ]
    (height, width, _), gap = cells[0][0].shape, 3 * line_width
    # The first gap after a query is twice as wide.
    shape = (len(cells) * (height + gap) + gap, len(cells[0]) * (width + gap) + 2 * gap, 3)
    grid = np.full(shape, 255, np.uint8)
    for row, column in np.ndindex(len(cells), len(cells[0])):
        top = gap + row * (height + gap)
        left = gap + column * (width + gap) + (gap if column else 0)
        grid[top : top + height, left : left + width] = cells[row][column]
    return grid


def _framed(
    picture: NDArray[np.uint8], colour: tuple[int, int, int], line_width: int, dashed: bool
) -> NDArray[np.uint8]:
    """Return the picture with a white margin and a frame, 4 line widths larger."""
    height, width = picture.shape[0] + 4 * line_width, picture.shape[1] + 4 * line_width
    framed = np.full((height, width, 3), 255, np.uint8)
    mask = np.zeros((height, width), bool)  # the pixels of the frame
    mask[:line_width] = mask[-line_width:] = _dashes(width, line_width, dashed)
    dashes = _dashes(height, line_width, dashed)[:, None]
    mask[:, :line_width] |= dashes
    mask[:, -line_width:] |= dashes
    framed[mask] = colour
    framed[2 * line_width : -2 * line_width, 2 * line_width : -2 * line_width] = picture
    return framed


def _dashes(length: int, line_width: int, dashed: bool) -> NDArray[np.bool_]:
    """Return which pixels of a side of a frame are drawn; there is a dash at each end."""
    # Number of dashes and gaps, which alternate and are of equal length: even ones are dashes.
    count = 2 * max(1, round(length / (8 * line_width))) + 1 if dashed else 1
    return np.arange(length) * count // length % 2 == 0


def save_gallery(path: str | os.PathLike[str], grid: NDArray[np.uint8]) -> None:
    """Write an image as PNG, atomically: to a temporary file that is then renamed.

    Args:
        path: File to write, ``.png``; missing parent folders are created.
        grid: uint8, shape (height, width, 3).

    Raises:
        ValueError: The name does not end in ``.png``, or the dtype or shape of ``grid`` is wrong.
        ImportError: Pillow is not installed.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ValueError(f"a gallery is written as .png, but got path={str(target)!r}.")
    if not isinstance(grid, np.ndarray) or grid.dtype != np.uint8 or grid.shape[2:] != (3,):
        raise ValueError("grid must be a uint8 array of shape (height, width, 3).")
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("save_gallery needs Pillow: pip install Pillow") from error
    buffer = io.BytesIO()
    Image.fromarray(grid).save(buffer, format="PNG")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The name is shortened, so that the temporary one is not too long for a file system.
    temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(buffer.getvalue())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _picture(image: NDArray[np.uint8] | Tensor) -> NDArray[np.uint8]:
    """Return an image (H, W, C) as RGB, enlarged to sides of at least ``SMALLEST_SIDE``."""
    pixels = image.cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    # Rounded up.
    factor = -(-SMALLEST_SIDE // min(pixels.shape[:2]))
    pixels = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))


def _checked_labels(
    name: str, images: NDArray[np.uint8] | Tensor, labels_name: str, labels: Tensor | ArrayLike
) -> Tensor:
    """Check images and their labels, and return the labels as int64 on the CPU."""
    check_images(name, images)
    if images.shape[3] not in (1, 3):
        raise ValueError(f"{name} must have 1 or 3 channels, but have {images.shape[3]}.")
    checked = integers(labels, labels_name).cpu()
    if len(checked) != len(images):
        raise ValueError(
            f"{labels_name} must have shape ({len(images)},) like {name}, but got "
            f"{tuple(checked.shape)}."
        )
    return checked


def _checked_indices(name: str, values: Tensor | ArrayLike, size: int, ndim: int) -> Tensor:
    """Check that ``values`` are indices below ``size``, and return them as int64 on the CPU."""
    indices = tensor(values, name).cpu()
    if indices.ndim != ndim or indices.numel() == 0:
        shape = "(Q,)" if ndim == 1 else "(Q, K)"
        raise ValueError(
            f"{name} must have shape {shape} and not be empty, but got {tuple(indices.shape)}."
        )
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise ValueError(f"{name} must be indices, but their dtype is {indices.dtype}.")
    lowest, highest = (int(end) for end in indices.aminmax())
    if lowest < 0 or highest >= size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"{name} must be indices from 0 to {size - 1}, but one is {wrong}.")
    return indices.long()
