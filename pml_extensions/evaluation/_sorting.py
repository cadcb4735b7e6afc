"""The ranks of each query's own references, from its nearest references of any class."""

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
from pml_extensions.evaluation._strips import in_strips
from pml_extensions.evaluation._tiles import Side, Task

#: Most similarities of which the largest stands for all while the nearest are sought.
_LARGEST_GROUP = 16
#: Raw vectors are compared in float32 first where at most 1 / _ROUNDED_SHARE of all ranks matter.
_ROUNDED_SHARE = 8
#: Where more than 1 / _DOUBTFUL_SHARE of a strip is in doubt, all of it is computed in float64.
_DOUBTFUL_SHARE = 32
#: Numbers of vectors subtracted at once.
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
    """Rank by the nearest of all references: for few of them, and for classes too large to count.

    Args:
        queries: Who asks.
        references: In the order of their positions.
        task: What is to be found.
        widths: Members of the class of each query, or more; only a GPU, which would have to be
            waited for, needs them.
        size: Queries taken at a time.
        scores: Gets the ranks.
        exclude: The position of each query among the references, if it is to be left out.
        halved: On a CPU, where the queries are the references: compute the similarity of two once.
    """
    count, items = len(queries.classes), len(references.classes)
    on_cpu = queries.vectors.device.type == "cpu"
    left, right, precision = queries, references, None
    if on_cpu and queries.offset is not None:
        deepest = max(int(task.own.max()), task.limit or 0)
        if deepest * _ROUNDED_SHARE <= items:
            left, right, *precision = _rounded(queries, references)
    strip = left.vectors.new_empty(min(size, count), items) if on_cpu else None

    def rank(rows: slice, similarities: Tensor | None = None) -> None:
        tile = queries.tile(rows)
        if similarities is None:
            out = None if strip is None else strip[: len(tile.classes)]
            similarities = left.tile(rows).similarities(right, out)
        width = int(task.own[tile.classes].max()) if on_cpu else max(widths[rows])
        excluded = None if exclude is None else exclude[rows]
        doubt = None if precision is None else _Doubt(tile, references, *precision)
        _rank(tile, similarities, references.classes, task, width, scores, excluded, doubt)

    if halved and strip is not None:
        for rows in _halved(left, strip):
            rank(rows, strip[: rows.stop - rows.start])
    else:
        in_strips(count, size, rank)


def _halved(side: Side, strip: Tensor) -> Iterator[slice]:
    """Fill ``strip`` with the similarities of these rows to all, some rows after others.

    The similarity of two is computed once and waits for the later of both, so that a quarter of
    all similarities is kept at most.
    """
    size, count = strip.shape
    waiting = defaultdict[int, list[NDArray[np.floating]]](list)
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        similarities = strip[: rows.stop - start]
        # NumPy copies: threads would wait for each other longer than small copies take.
        values = similarities.numpy()
        for i, block in enumerate(waiting.pop(start, ())):
            values[:, i * size : (i + 1) * size] = block
        side.tile(rows).similarities(side.tile(slice(start, None)), out=similarities[:, start:])
        for later in range(start + size, count, size):
            waiting[later].append(values[:, later : later + size].T.copy())
        yield rows


def _rounded(queries: Side, references: Side) -> tuple[Side, Side, float, float]:
    """Return both in float32, whose products take half the time.

    Returns:
        Queries and references around their mean, no vector longer than 1, by what they are scaled,
        and the most that two similarities may be apart and yet stand in the wrong order. A product
        of D-dimensional vectors of length 1 is wrong by at most D half units in the last place;
        16 more are for the rounding of vectors, offsets and sums.
    """
    centre = references.vectors.mean(dim=0)
    sides = (references,) if queries is references else (queries, references)
    centred = [side.vectors - centre for side in sides]
    squares = [torch.linalg.vecdot(vectors, vectors) for vectors in centred]
    # A power of two, so that nothing is rounded.
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
    """What float32 similarities of a strip of raw vectors, as in :func:`_rounded`, leave in doubt.

    Attributes:
        queries: Those of the strip.
        references: All of them.
        scale: By what vectors were scaled.
        slack: How far two similarities may be apart and yet stand in the wrong order.
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
                between = x.take(rows[part], axis=0) - y.take(columns[part], axis=0)
                squares[part] = np.einsum("nd,nd->n", between, between)
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
    """Rank references of these classes for a tile of queries with at most ``width`` own ones."""
    if exclude is not None:
        similarities.scatter_(1, exclude.unsqueeze(1), -torch.inf)
    own = task.own[tile.classes]
    others = len(classes) - int(exclude is not None)
    # At least one, because a query without own references may come alone.
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
    # Matches come first, in order; the others count as beyond every limit.
    beyond = len(classes) + 1
    ranks = torch.where(matches, rank, beyond)
    ranks = torch.from_numpy(np.sort(ranks.numpy())) if on_cpu else ranks.sort(dim=1).values
    if on_cpu and task.first_limit > count:
        lost = ((ranks[:, 0] == beyond) & (own > 0)).nonzero().squeeze(1)
        similarities = similarities[lost]
        if doubt is not None:
            similarities = tile.tile(lost).similarities(doubt.references)
            if exclude is not None:
                similarities.scatter_(1, exclude[lost].unsqueeze(1), -torch.inf)
        ranks[lost, 0] = _first(similarities, classes == tile.classes[lost].unsqueeze(1))
    scores.add(tile.positions, ranks[:, :width], own)


def _first(similarities: Tensor, is_own: Tensor) -> Tensor:
    """Return the rank of the best own reference of each row."""
    # Of equal ones the first.
    best, column = similarities.masked_fill(~is_own, -torch.inf).max(dim=1, keepdim=True)
    is_earlier = torch.arange(similarities.shape[1], device=column.device) < column
    return 1 + ((similarities > best) | ((similarities == best) & is_earlier)).sum(dim=1)


def nearest_by_sorting(similarities: Tensor, count: int) -> Tensor:
    """Return the columns of the ``count`` largest values of each row, ties in order of index.

    ``topk`` leaves open which of several equals it keeps.
    """
    return similarities.sort(dim=1, descending=True, stable=True).indices[:, :count]


def nearest_by_numpy(
    similarities: NDArray[np.floating], count: int, doubt: _Doubt | None = None
) -> NDArray[np.int64]:
    """Do as ``nearest_by_sorting``, several times as fast as topk on a CPU.

    The ``count``-th largest of the maxima of groups is at most the ``count``-th largest value,
    and few others reach it.

    Args:
        similarities: Shape (Q, M).
        count: How many are sought.
        doubt: Says which of them are not exact enough, and their exact distances.
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
    # Candidates stand in order of index, as equal ones have to.
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
        rows: Which rows of the strip these are.
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
