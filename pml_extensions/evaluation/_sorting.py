"""Ranking of each query's own references by sorting its nearest references of all classes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation._strips import for_each_chunk
from pml_extensions.evaluation._tiles import Side, Task

#: Maximum group size in the search for the nearest references, which uses the maximum of a group.
_LARGEST_GROUP = 16
#: Raw vectors are first compared in float32 if at most 1 / _ROUNDED_SHARE of all ranks are needed.
_ROUNDED_SHARE = 8
#: If more than 1 / _DOUBTFUL_SHARE of a chunk is in doubt, all of it is computed in float64.
_DOUBTFUL_SHARE = 32
#: Number of vector entries subtracted at once.
_SUBTRACTED_ENTRIES = 2**16


def rank_by_sorting(
    queries: Side,
    references: Side,
    task: Task,
    widths: Sequence[int],
    size: int,
    scores: Scores,
    exclude: Tensor | None,
    halved: bool = False,
) -> None:
    """Rank by sorting: used for few references, and for classes too large for counting.

    Args:
        queries: Queries in any order.
        references: References in the order of their positions.
        task: Classes and ranks of interest.
        widths: Upper bounds on the class size of each query; needed on a GPU only, to avoid a
            synchronisation.
        size: Number of queries in a chunk.
        scores: Receives the ranks of each chunk.
        exclude: Position of each query among the references, to leave it out.
        halved: Compute each similarity once; on a CPU, if the queries are the references.
    """
    count, items = len(queries.classes), len(references.classes)
    on_cpu = queries.vectors.device.type == "cpu"
    left, right, precision = queries, references, None
    if on_cpu and queries.offset is not None:
        deepest = max(int(task.own.max()), task.limit or 0)
        if deepest * _ROUNDED_SHARE <= items:
            left, right, *precision = _rounded(queries, references)
    buffer = left.vectors.new_empty(min(size, count), items) if on_cpu else None

    def rank(rows: slice, similarities: Tensor | None = None) -> None:
        tile = queries.tile(rows)
        if similarities is None:
            out = None if buffer is None else buffer[: len(tile.classes)]
            similarities = left.tile(rows).similarities(right, out)
        width = int(task.own[tile.classes].max()) if on_cpu else max(widths[rows])
        excluded = None if exclude is None else exclude[rows]
        doubt = None if precision is None else _Doubt(tile, references, *precision)
        _rank(tile, similarities, references.classes, task, width, scores, excluded, doubt)

    if halved and buffer is not None:
        for rows in _halved(left, buffer):
            rank(rows, buffer[: rows.stop - rows.start])
    else:
        for_each_chunk(count, size, rank)


def _halved(side: Side, buffer: Tensor) -> Iterator[slice]:
    """Fill ``buffer`` with the similarities of each chunk of rows to all rows; yield the rows.

    Each similarity is computed once and kept for the later of its two rows, so at most a quarter of
    all similarities is in memory.
    """
    size, count = buffer.shape
    waiting = defaultdict[int, list[NDArray[np.floating]]](list)
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        similarities = buffer[: rows.stop - start]
        # NumPy copies, because torch's threads take longer to synchronise than a small copy.
        values = similarities.numpy()
        for i, block in enumerate(waiting.pop(start, ())):
            values[:, i * size : (i + 1) * size] = block
        side.tile(rows).similarities(side.tile(slice(start, None)), out=similarities[:, start:])
        for later in range(start + size, count, size):
            waiting[later].append(values[:, later : later + size].T.copy())
        yield rows


def _rounded(queries: Side, references: Side) -> tuple[Side, Side, float, float]:
    """Return queries and references in float32, whose products take half the time.

    Returns:
        Queries and references, centred and scaled to at most length 1; the scale; and the largest
        difference of two similarities that may be in the wrong order (``slack``). The error of a
        product of D-dimensional unit vectors is at most D half units in the last place; 16 more
        cover the rounding of vectors, offsets and sums.
    """
    centre = references.vectors.mean(dim=0)
    sides = (references,) if queries is references else (queries, references)
    centred = [side.vectors - centre for side in sides]
    squares = [torch.linalg.vecdot(vectors, vectors) for vectors in centred]
    # A power of two, so that scaling is exact.
    longest = math.sqrt(max(float(part.max()) for part in squares))
    scale = 2.0 ** -math.frexp(longest)[1]
    slack = 2 * (len(centre) + 16) * 2.0**-24 * (longest * scale) ** 2
    rounded = [
        Side(
            vectors.mul_(scale).float(),
            (part * (scale**2 / -2)).float(),
            side.classes,
            side.positions,
        )
        for side, vectors, part in zip(sides, centred, squares, strict=True)
    ]
    return rounded[0], rounded[-1], scale, slack


@dataclass
class _Doubt:
    """Exact distances where the float32 similarities of :func:`_rounded` leave the order in doubt.

    Attributes:
        queries: Queries of the chunk.
        references: All references.
        scale: Scale of the rounded vectors.
        slack: Largest difference of two similarities that may be in the wrong order.
    """

    queries: Side
    references: Side
    scale: float
    slack: float

    def matches(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether references, a row for each of these queries, are of the query's class."""
        own = self.queries.classes.numpy()[rows]
        return self.references.classes.numpy()[columns] == own[:, None]

    def distances(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return |x - y|^2 / 2 of queries and references in float64, scaled."""
        x, y = self.queries.vectors.numpy(), self.references.vectors.numpy()
        if len(rows) * _DOUBTFUL_SHARE > len(x) * len(y):
            squares = -2 * self.queries.similarities(self.references).numpy()[rows, columns]
        else:
            size = max(1, _SUBTRACTED_ENTRIES // x.shape[1])
            squares = np.empty(len(rows))
            for start in range(0, len(rows), size):
                part = slice(start, start + size)
                difference = x.take(rows[part], axis=0) - y.take(columns[part], axis=0)
                squares[part] = np.einsum("nd,nd->n", difference, difference)
        distances: NDArray[np.float64] = squares * (self.scale**2 / 2)
        return distances


def _rank(
    tile: Side,
    similarities: Tensor,
    classes: Tensor,
    task: Task,
    width: int,
    scores: Scores,
    exclude: Tensor | None,
    doubt: _Doubt | None,
) -> None:
    """Rank references for a tile of queries that have at most ``width`` own references each."""
    if exclude is not None:
        similarities.scatter_(1, exclude.unsqueeze(1), -torch.inf)
    own = task.own[tile.classes]
    others = len(classes) - int(exclude is not None)
    # At least 1, because all queries of a tile may be without own references.
    width = max(1, min(width, others))
    depth = max(width, task.limit or 0)
    on_cpu = similarities.device.type == "cpu"
    count = min(others, depth if on_cpu else max(depth, task.first_limit))
    if on_cpu:
        nearest = torch.from_numpy(nearest_by_numpy(similarities.numpy(), count, doubt))
    else:
        nearest = nearest_by_sorting(similarities, count)
    matches = classes[nearest] == tile.classes.unsqueeze(1)
    rank = torch.arange(1, count + 1, device=own.device)
    # Sorting puts the ranks of matches first; all others get a rank above every limit.
    beyond = len(classes) + 1
    ranks = torch.where(matches, rank, beyond)
    ranks = torch.from_numpy(np.sort(ranks.numpy())) if on_cpu else ranks.sort(dim=1).values
    if on_cpu and task.first_limit > count:
        missed = ((ranks[:, 0] == beyond) & (own > 0)).nonzero().squeeze(1)
        similarities = similarities[missed]
        if doubt is not None:
            similarities = tile.tile(missed).similarities(doubt.references)
            if exclude is not None:
                similarities.scatter_(1, exclude[missed].unsqueeze(1), -torch.inf)
        ranks[missed, 0] = _first(similarities, classes == tile.classes[missed].unsqueeze(1))
    scores.add(tile.positions, ranks[:, :width], own)


def _first(similarities: Tensor, is_own: Tensor) -> Tensor:
    """Return the rank of the best own reference of each row."""
    # The first of equal ones.
    best, column = similarities.masked_fill(~is_own, -torch.inf).max(dim=1, keepdim=True)
    is_earlier = torch.arange(similarities.shape[1], device=column.device) < column
    return 1 + ((similarities > best) | ((similarities == best) & is_earlier)).sum(dim=1)


def nearest_by_sorting(similarities: Tensor, count: int) -> Tensor:
    """Return the columns of the ``count`` largest values of each row, ties in order of index.

    ``topk`` does not define which of several equal values it returns.
    """
    return similarities.sort(dim=1, descending=True, stable=True).indices[:, :count]


def nearest_by_numpy(
    similarities: NDArray[np.floating], count: int, doubt: _Doubt | None = None
) -> NDArray[np.int64]:
    """Return the same as ``nearest_by_sorting``, on a CPU several times as fast as topk.

    Only values at or above the ``count``-th largest of group maxima, a lower bound of the
    ``count``-th largest value, are sorted.

    Args:
        similarities: Shape (Q, M).
        count: Number of columns to return.
        doubt: Gives exact distances where similarities are too close; None: they are exact.
    """
    slack = 0.0 if doubt is None else doubt.slack
    rows, size = similarities.shape
    group = max(1, min(_LARGEST_GROUP, size // (4 * count)))
    groups = size // group
    maxima = similarities[:, : group * groups].reshape(rows, group, groups).max(axis=1)
    bound = np.sort(maxima, axis=1)[:, groups - count] - slack
    flat = np.flatnonzero(~(similarities < bound[:, None]))
    first = np.searchsorted(flat, np.arange(rows + 1) * size)
    step = np.arange(np.diff(first).max())
    candidates = flat.take(first[:-1, None] + step, mode="clip")
    distances = -similarities.reshape(-1).take(candidates)
    distances[first[:-1, None] + step >= first[1:, None]] = np.inf
    nearest = np.argsort(distances, axis=1)
    ranked = np.take_along_axis(distances, nearest, axis=1)
    # What comes after the last that is sought, and cannot be as near, does not matter.
    later = ranked[:, 1:]
    reach = ranked[:, [count - 1]] + distances.dtype.type(slack)
    close = (later <= ranked[:, :-1] + distances.dtype.type(slack)) & (later <= reach)
    close &= later < np.inf
    tied = np.flatnonzero(close.any(axis=1))
    distances, order = distances[tied], nearest[tied]
    if doubt is not None and len(tied):
        row, rank = _doubtful(close[tied], doubt, tied, candidates[tied] % size, order)
        column = order[row, rank]
        distances = distances.astype(np.float64)
        distances[row, column] = doubt.distances(tied[row], candidates[tied[row], column] % size)
    # Candidates are in order of index, and a stable sort keeps this order for equal values.
    nearest[tied] = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(candidates, nearest[:, :count], axis=1) % size


def _doubtful(
    close: NDArray[np.bool_],
    doubt: _Doubt,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    order: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and rank of those in runs of close ones that hold both right and wrong ones.

    Args:
        close: Whether the next of each row, in order, is close, shape (R, C - 1).
        doubt: What the similarities leave in doubt.
        rows: Which rows of the buffer these are.
        columns: References, shape (R, C).
        order: In which order they are near, shape (R, C).
    """
    is_start = np.ones(order.shape, bool)
    is_start[:, 1:] = ~close
    run = is_start.cumsum().reshape(order.shape)
    is_own = np.take_along_axis(doubt.matches(rows, columns), order, axis=1)
    is_mixed = np.zeros(run[-1, -1] + 1, bool)
    is_mixed[run[:, 1:][close & (is_own[:, 1:] != is_own[:, :-1])]] = True
    return is_mixed[run].nonzero()
